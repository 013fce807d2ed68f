"""Compare rows of recmap with those of ``tensorflow_datasets``."""

from __future__ import annotations

from typing import Any

import numpy as np

import recmap as rm


def plain(value: Any) -> Any:
    """Return a value as nested lists of numbers and byte strings."""
    if isinstance(value, rm.Ragged | list):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, str):
        return value.encode()
    return value.item() if isinstance(value, np.generic) else value


def flat(row: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Return nested features by their path; those of steps as lists."""
    made: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            made |= flat(value, f"{before}{name}/")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            steps = [flat(step, f"{before}{name}/") for step in value]
            made |= {key: [step[key] for step in steps] for key in steps[0]}
        else:
            made[f"{before}{name}"] = value
    return made


def assert_rows(found: Any, wanted: list[dict[str, Any]], columns: Any = None) -> None:
    """Compare a batch with rows, as far as the columns of the batch go."""
    rows = [flat(row) for row in wanted]
    for name in columns or found:
        assert len(found[name]) == len(rows), name
        assert plain(found[name]) == [plain(row[name]) for row in rows], name
        if rows and isinstance(rows[0][name], np.ndarray | np.generic):
            dtype = rows[0][name].dtype
            assert dtype.kind == "O" or found[name].dtype == dtype, name
