"""Rows are gathered from several files at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm

# Several columns; only some of them lie in one piece in each format.
_SUFFIXES = (".npz", ".tar", ".safetensors", ".h5", ".zarr", ".parquet", ".tfrecord", ".arrow")


def _columns(rng: np.random.Generator, rows: int) -> dict[str, Any]:
    names = [f"row {n}" for n in rng.integers(0, 1 << 40, rows)]
    return {
        "image": rng.integers(0, 256, (rows, 4, 5), np.uint8),
        "label": rng.integers(0, 1000, rows),
        "ids": rm.Ragged.from_rows([rng.integers(0, 99, n) for n in rng.integers(0, 6, rows)]),
        "name": rm.Ragged.from_text(names),
    }


def _assert_equal(found: Any, expected: Any) -> None:
    if isinstance(expected, rm.Ragged):
        assert found.tolist() == expected.tolist()
    else:
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype


@pytest.mark.parametrize("suffix", _SUFFIXES)
def test_rows_of_several_files_come_in_the_order_asked_for(tmp_path: Path, suffix: str) -> None:
    rng = np.random.default_rng(len(suffix))
    names = ["image", "label"] if suffix == ".safetensors" else ["image", "label", "ids", "name"]
    files = [{name: _columns(rng, rows)[name] for name in names} for rows in (7, 1, 12)]
    for i, columns in enumerate(files):
        rm.open(columns).save(tmp_path / f"part-{i}{suffix}")
    ds = rm.open(sorted(tmp_path.glob(f"part-*{suffix}")))
    whole = {name: np.concatenate([f[name] for f in files]) for name in ("image", "label")}
    lists = {n: [row for f in files for row in f[n].tolist()] for n in names if n not in whole}
    for _ in range(8):
        rows = rng.integers(0, len(ds), rng.integers(1, 30))
        found = ds[rows]
        for name, column in whole.items():
            _assert_equal(found[name], column[rows])
        for name, values in lists.items():
            assert found[name].tolist() == [values[row] for row in rows]
        assert list(found) == list(ds.columns)


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "u1", "?", "c16", "M8[s]"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (5, 300)])
def test_npy_files_are_gathered_like_one_array(
    tmp_path: Path, dtype: str, shape: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(1)
    parts = [rng.integers(0, 100, (rows, *shape)).astype(dtype) for rows in (5, 0, 40, 3)]
    for i, part in enumerate(parts):
        np.save(tmp_path / f"{i}.npy", part)
    ds = rm.open(sorted(tmp_path.glob("*.npy")))
    whole = np.concatenate(parts)
    for _ in range(10):
        rows = rng.integers(-len(whole), len(whole), 25)
        (column,) = ds[rows].values()
        np.testing.assert_array_equal(column, whole[rows])
        assert column.dtype == parts[0].dtype
        assert column.flags.writeable


def test_a_file_that_became_shorter_is_an_error(tmp_path: Path) -> None:
    for i in range(3):
        np.save(tmp_path / f"{i}.npy", np.ones((4096, 16), np.float32))
    ds = rm.open(sorted(tmp_path.glob("*.npy")))
    rows = np.array([0, 3 * 4096 - 1, 5000, 4095])
    assert len(ds[rows]) == 1
    os.truncate(tmp_path / "1.npy", 8192)
    with pytest.raises(rm.DataError, match=r"1\.npy"):
        ds[rows]
