"""Nulls go from each format to each other one and back, with random schemas."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import recmap as rm

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "int": (pa.int64(), lambda rng: rng.randrange(-9, 9)),
    "small": (pa.uint8(), lambda rng: rng.randrange(256)),
    "bool": (pa.bool_(), lambda rng: rng.random() < 0.5),
    "float": (pa.float32(), lambda rng: rng.randrange(9) / 2),
    "half": (pa.float16(), lambda rng: rng.randrange(9) / 2),
    "text": (pa.string(), lambda rng: rng.choice(["", "a", "bé"])),
    "bytes": (pa.binary(), lambda rng: rng.choice([b"", b"\xff", b"abc"])),
    "fixed": (pa.binary(3), lambda rng: rng.choice([b"\0\0\0", b"abc"])),
    "date": (pa.date32(), lambda rng: rng.randrange(9)),
    "time": (pa.timestamp("us"), lambda rng: rng.randrange(9)),
}


def random_table(rng: random.Random, rows: int) -> pa.Table:
    """Return columns of every kind and form, with nulls in some rows and some items."""
    columns = {"id": pa.array(range(rows), pa.int64())}
    for name, (kind, value) in KINDS.items():
        types = {"one": kind, "list": pa.list_(kind), "pair": pa.list_(kind, 2)}
        for form, made in types.items():
            share = rng.choice([0, 0.3, 1])
            inside = rng.choice([0, 0.3]) if form == "list" else 0

            def row(form: str = form, value: Any = value, inside: float = inside) -> Any:
                if form == "one":
                    return value(rng)
                size = 2 if form == "pair" else rng.randrange(4)
                return [None if rng.random() < inside else value(rng) for _ in range(size)]

            values = [None if rng.random() < share else row() for _ in range(rows)]
            columns[f"{form} {name}"] = pa.array(values, made)
    return pa.table(columns)


def plain(value: Any) -> Any:
    if isinstance(value, rm.Ragged | list) or (isinstance(value, np.ndarray) and value.ndim):
        return [plain(item) for item in value]
    if isinstance(value, np.void):
        return value.tobytes()
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else value.astype(np.int64).item()
    return value.item() if isinstance(value, np.generic | np.ndarray) else value


def rows(ds: rm.Dataset) -> list[dict[str, Any]]:
    return [{name: plain(value) for name, value in row.items()} for row in ds]


def tour(names: list[str]) -> Iterator[str]:
    """Yield names so that each comes after each other one."""
    for number, one in enumerate(names):
        for other in names[number + 1 :]:
            yield one
            yield other
        yield one


def follow(ds: rm.Dataset, endings: Iterable[str]) -> None:
    """Copy rows from one format to the next."""
    wanted, schema = rows(ds), dict(ds.schema)
    for number, ending in enumerate(endings):
        path = f"{number}{ending}"
        ds.save(path, options={"durable": False}, overwrite=True)
        ds = rm.open(path)
        assert rows(ds) == wanted, path
        assert dict(ds.schema) == schema, path


@pytest.mark.slow
def test_values_and_nulls_are_equal_after_every_pair_of_formats() -> None:
    """HDF5 has no bytes of a fixed size."""
    rng = random.Random(5)
    ds = rm.open(random_table(rng, 7))
    lists = [name for name, field in ds.schema.items() if field.null_items]
    names = [name for name in ds.schema if "fixed" not in name and name not in lists]
    assert lists
    chosen = [*lists[:2], *rng.sample(names, 3)]
    follow(ds.select(*chosen), tour([".parquet", ".arrow", ".npz", ".h5", ".zarr"]))


def test_values_and_nulls_are_equal_after_tfrecord() -> None:
    """Lists of TFRecord have no nulls."""
    ds = rm.open(random_table(random.Random(6), 7))
    names = [name for name, field in ds.schema.items() if not field.null_items]
    assert sum(name.startswith("list") for name in names) > 2
    follow(ds.select(*names), [".arrow", ".tfrecord", ".npz"])
    few = random.Random(6).sample([name for name in names if "fixed" not in name], 4)
    follow(ds.select(*few), [".h5", ".tfrecord", ".zarr", ".tfrecord", ".h5"])
    follow(ds.select(*few), [".parquet", ".tfrecord", ".parquet"])


def test_the_model_is_what_pyarrow_has() -> None:
    table = random_table(random.Random(7), 20)
    found = rows(rm.open(table))
    for name in table.column_names:
        if not name.endswith(("date", "time")):
            assert [row[name] for row in found] == table[name].to_pylist()
