"""Token files of Megatron-LM and llm.c: random ones, damaged ones, and those that recmap writes."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import recmap as rm
from hostile.case import Case
from hostile.file_damage import check_damaged, damage
from hostile.reading import check_some_ways
from hostile.table import Table, rows_of

__all__ = ["case"]

# Their numbers in an index.
_DTYPES = ("u1", "i1", "i2", "i4", "i8", "f8", "f4", "u2")


def case(case: Case) -> None:
    if case.chance(0.3):
        _llmc(case)
    else:
        _megatron(case)


def _megatron(case: Case) -> None:
    rows = case.pick([0, 1, case.between(2, 40), 500])
    code = case.between(1, 8)
    dtype = np.dtype(_DTYPES[code - 1])
    lengths = case.rng.integers(0, case.pick([1, 5, 300]), rows).astype("<i4")
    values = _values(case, int(lengths.sum()), dtype)
    numbers = np.cumsum(case.rng.integers(0, 2, rows)) - 1
    numbers = np.maximum(numbers - (numbers[0] if rows else 0), 0)
    edges = np.searchsorted(numbers, np.arange(int(numbers[-1]) + 2 if rows else 1))
    # Without rows, nothing tells that there are modes.
    modes = case.rng.integers(-128, 128, rows).astype("i1") if rows and case.chance(0.4) else None
    pointers = np.concatenate([[0], np.cumsum(lengths)[:-1]])[:rows] * dtype.itemsize
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, rows, len(edges))
    parts: list[Any] = [lengths, pointers.astype("<i8"), edges.astype("<i8")]
    parts += [] if modes is None else [modes]
    path = case.path("x.idx")
    Path(path).write_bytes(head + b"".join(part.tobytes() for part in parts))
    Path(case.path("x.bin")).write_bytes(values.tobytes())
    case.note(f"megatron: {rows} sequences of {dtype}, {len(edges) - 1} documents")
    ends = np.cumsum(lengths)
    table: Table = {
        "tokens": [values[e - n : e] for e, n in zip(ends, lengths, strict=True)],
        "document": list(numbers.astype(np.int64)),
    }
    if modes is not None:
        table["mode"] = list(modes)
    check_some_ways(case, rm.open(path), table)
    saved = case.path("again.idx")
    rm.open(path).save(saved, verify=case.pick([True, "full"]))
    for name in ("idx", "bin"):
        if (
            Path(case.path(f"again.{name}")).read_bytes()
            != Path(case.path(f"x.{name}")).read_bytes()
        ):
            raise AssertionError(f"the .{name} that recmap wrote differs")
    if case.chance(0.5):
        # Any rows that are read are consistent: nothing else tells damaged tokens from others.
        damage(case, case.pick([path, case.path("x.bin")]))
        _consistent(case, path, dtype)


def _consistent(case: Case, path: str, dtype: np.dtype[Any]) -> None:
    try:
        ds = rm.open(path)
        batch = ds[:]
    except rm.RecmapError as e:
        case.note(f"refused: {e}")
        case.outcome = "refused"
        return
    sizes = batch["tokens"].lengths
    total = int(sizes.sum()) * ds.schema["tokens"].dtype.itemsize
    if total != Path(path).with_suffix(".bin").stat().st_size or bool((sizes < 0).any()):
        raise AssertionError(f"{total} bytes of tokens were read")


def _llmc(case: Case) -> None:
    dtype, kind = case.pick([("<u2", (20240520, 1)), ("<u4", (20240801, 7))])
    tokens = _values(case, case.pick([0, 1, case.between(2, 3000)]), np.dtype(dtype))
    header = np.zeros(256, "<i4")
    header[:3] = *kind, len(tokens)
    path = case.path("x.bin")
    Path(path).write_bytes(header.tobytes() + tokens.tobytes())
    case.note(f"llmc: {len(tokens)} of {dtype}")
    check_some_ways(case, rm.open(path), {"tokens": rows_of(tokens)})
    if len(tokens):
        rm.open(path).save(case.path("y.bin"), format="llmc")
        if Path(case.path("y.bin")).read_bytes() != Path(path).read_bytes():
            raise AssertionError("the file that recmap wrote differs")

    def read() -> Table:
        content = Path(path).read_bytes()
        found = np.frombuffer(content, "<i4", 3).tolist()
        width = {(20240520, 1): 2, (20240801, 7): 4}[found[0], found[1]]
        if len(content) != 1024 + found[2] * width:
            raise ValueError("another size")
        return {"tokens": rows_of(np.frombuffer(content, f"<u{width}", -1, 1024))}

    if case.chance(0.5):
        check_damaged(case, path, read, checksums=True)


def _values(case: Case, count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    return np.frombuffer(case.rng.bytes(count * dtype.itemsize), dtype)
