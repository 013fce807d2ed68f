"""Steps of episodes of any lengths, written as LeRobot and as RLDS, and one made of the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import recmap as rm
from hostile.case import Case
from hostile.file_damage import damage
from hostile.reading import check_some_ways
from hostile.table import Table

__all__ = ["case"]

_DTYPES = ["u1", "i2", "i8", "u8", "f2", "f4", "f8", "?", ">i4", ">f8"]
_LEROBOT: dict[str, Any] = {"format": "lerobot", "options": {"fps": 10, "episodes": "key"}}
# The columns that LeRobot adds are not compared.
_NAMES = ["observation/state", "action", "a.b", "reward", "note"]


def case(case: Case) -> None:
    lengths = [case.pick([1, 1, 2, case.between(1, 30)]) for _ in range(case.between(1, 6))]
    table = {name: _column(case, sum(lengths)) for name in _NAMES if case.chance(0.6)}
    table.setdefault("x", np.arange(sum(lengths)))
    keys = [str(number) if case.chance(0.1) else "e" * number for number in range(len(lengths))]
    texts = [case.pick(["", "ä", "pick", "pick it up " * 9]) for _ in range(sum(lengths))]
    steps = {
        **table,
        "key": rm.Ragged.from_text(np.repeat(keys, lengths).tolist()),
        "task": rm.Ragged.from_text(texts),
    }
    shards = case.pick([1, 2, 9])
    case.note(f"episodes of {lengths}, {rm.from_arrays(steps).schema}, {shards} shards")
    robot, rlds = case.path("robot"), case.path("rlds")
    try:
        rm.from_arrays(steps).save(robot, shards=shards, verify="full", **_LEROBOT)
    except rm.RecmapError as e:
        case.note(f"refused: {e}")
        case.outcome = "refused"
        return
    wanted: Table = {name.replace("/", "."): _kept(column) for name, column in table.items()}
    wanted["task"] = texts
    check_some_ways(case, rm.open(robot).select(list(wanted)), wanted)
    options = {"name": "set", "split": "train", "episodes": "episode_index"}
    rm.open(robot).save(rlds, format="tfds", shards=shards, verify="full", options=options)
    back = rm.open(f"{rlds}/set/1.0.0", split="train", unit="steps")
    named: Table = {name.replace(".", "/"): values for name, values in wanted.items()}
    check_some_ways(case, back.select(list(named)), named)
    if case.chance(0.3):
        files = sorted(str(path) for path in Path(robot).rglob("*") if path.is_file())
        damage(case, case.pick(files))
        try:
            found = rm.open(robot)[:]
        except rm.RecmapError as e:
            case.note(f"refused: {e}")
            case.outcome = "refused"
        else:
            case.note(f"{len(found)} columns are read")


def _column(case: Case, rows: int) -> Any:
    if case.chance(0.2):
        return rm.Ragged.from_text([case.pick(["", "ü", "text"]) for _ in range(rows)])
    dtype = case.pick(_DTYPES)
    # Of bytes, this would be an image.
    shape = case.pick([(), (1,), (3,), (2, 2), (4, 4, 3) if dtype != "u1" else (4, 4)])
    return case.rng.integers(0, 100, (rows, *shape)).astype(dtype)


def _kept(column: Any) -> list[Any]:
    """Return the rows as LeRobot has them: in the byte order of the machine, one number alone."""
    if isinstance(column, rm.Ragged):
        return list(column)
    shape = () if column.shape[1:] == (1,) else column.shape[1:]
    return list(column.astype(column.dtype.newbyteorder("=")).reshape(len(column), *shape))
