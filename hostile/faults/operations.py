"""The operations that are disturbed: everything in recmap that writes.

Each works at a ``Site``. ``before`` makes what is there at first, ``run`` is the command that is
disturbed, ``changed`` is a different command that someone runs after that, and ``read`` tells what
a reader sees.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import recmap as rm
from recmap.conversion import budget, engine
from recmap.store.object_writer import UploadParts, sending

__all__ = ["OPERATIONS", "Operation", "Site"]

#: How many shards there are, and how many there were or will be instead.
SHARDS, OTHER_SHARDS = 2, 3
#: The formats, and the ends of their files.
FORMATS = {
    "tfrecord": ".tfrecord",
    "tfrecord.gz": ".tfrecord.gz",
    "npy": ".npy",
    "npz": ".npz",
    "hdf5": ".h5",
    "zarr": ".zarr",
    "parquet": ".parquet",
    "arrow": ".arrow",
    "raw": ".bin",
}


@dataclass(frozen=True)
class Site:
    """Where an operation works: in a folder, and at a URL if its output goes to a store."""

    folder: str
    url: str | None = None
    storage: Mapping[str, Any] | None = None

    def input(self, name: str) -> str:
        return os.path.join(self.folder, "in", name)

    def output(self, name: str) -> str:
        return f"{self.url}/out/{name}" if self.url else os.path.join(self.folder, "out", name)

    def prepare(self) -> None:
        """Write the inputs of all operations."""
        os.makedirs(os.path.join(self.folder, "in"))
        for name, rows, first in (("new.npz", 24, 0), ("old.npz", 9, 1000)):
            numbers = np.arange(first, first + rows)
            np.savez(self.input(name), n=numbers, x=np.outer(numbers, np.ones(4)))


Act = Callable[[Site], Any]


@dataclass(frozen=True)
class Operation:
    """Something that writes, and what may come before and after it."""

    kind: str
    run: Act
    read: Act
    changed: Act
    before: Act | None = None
    format: str = ""
    #: Whether the first state is that of a run that was killed halfway.
    resumes: bool = False
    #: Whether it works with a store, and whether only requests to it are disturbed.
    in_store: bool = False
    requests_only: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind}: {self.format}" if self.format else self.kind


def _digest(columns: Mapping[str, Any]) -> str:
    """Return a text that only the same rows have."""
    every = hashlib.sha256()
    for name, column in sorted(columns.items()):
        values = np.ascontiguousarray(column, "float64")
        every.update(f"{name} {values.shape} ".encode() + values.tobytes())
    rows = len(next(iter(columns.values()), ()))
    return f"{rows} rows, {every.hexdigest()[:8]}"


def _read(name: str, site: Site, **options: Any) -> str:
    found = rm.open(site.output(name), storage=site.storage, **options)
    return _digest({name: found[name][:] for name in found.schema})


def _convert(
    output: str,
    site: Site,
    /,
    source: str = "new.npz",
    rows: slice | None = None,
    seed: int | None = None,
    **options: Any,
) -> None:
    ds = rm.open(site.input(source))
    ds = ds if rows is None else ds.select(rows)
    ds = ds if seed is None else ds.shuffle(seed=seed)
    ds.save(site.output(output), memory="64MB", workers=1, storage=site.storage, **options)


# Conversions


def _conversions() -> Iterator[Operation]:
    """Yield conversions to each format: to a file, to shards, and over older ones."""
    for format, suffix in FORMATS.items():
        name = f"x{suffix}"
        convert = partial(_convert, name)
        changed = partial(convert, rows=slice(5, 20), overwrite=True)
        file = Operation("write a file", convert, partial(_read, name), changed, format=format)
        yield file
        yield replace(
            file,
            kind="overwrite a file",
            run=partial(convert, overwrite=True),
            before=partial(convert, source="old.npz"),
        )
        options = {"format": format.removesuffix(".gz")}
        if format.endswith(".gz"):
            options["compression"] = "gzip"
        yield from _sharded(format, "d/", options)
        yield from _appended(format, options)
    tfds = {"format": "tfds", "options": {"name": "d", "split": "train"}}
    yield from _sharded("tfds", "", tfds, partial(_read, "d/1.0.0", split="train"))


def _sharded(
    format: str, folder: str, options: Mapping[str, Any], read: Act | None = None
) -> Iterator[Operation]:
    """Yield conversions to a folder of shards with a manifest."""
    convert = partial(_convert, folder, **options)
    run = partial(convert, shards=SHARDS)
    changed = partial(convert, rows=slice(5, 20), shards=OTHER_SHARDS, overwrite=True)
    read = read or partial(_read, folder)
    shards = Operation("write shards", run, read, changed, format=format)
    yield shards
    yield replace(shards, kind="resume shards", resumes=True)
    yield replace(
        shards,
        kind="overwrite shards",
        run=partial(run, overwrite=True),
        before=partial(convert, source="old.npz", shards=OTHER_SHARDS),
    )


def _appended(format: str, options: Mapping[str, Any]) -> Iterator[Operation]:
    """Yield conversions that add shards to a folder."""
    convert = partial(_convert, "d/", **options)
    run = partial(convert, shards=SHARDS, append=True)
    append = Operation(
        "append shards",
        run,
        partial(_read, "d/"),
        # Another append would come after one that was finished when it was disturbed.
        partial(convert, rows=slice(5, 20), shards=OTHER_SHARDS, overwrite=True),
        before=partial(convert, source="old.npz", shards=OTHER_SHARDS),
        format=format,
    )
    yield append
    yield replace(
        append,
        kind="overwrite appended shards",
        run=partial(convert, shards=SHARDS, overwrite=True),
        before=partial(_append_to_old, convert),
    )


def _append_to_old(convert: Act, site: Site) -> None:
    convert(site, source="old.npz", shards=OTHER_SHARDS)  # type: ignore[call-arg]
    convert(site, rows=slice(3), append=True)  # type: ignore[call-arg]


def _shuffled() -> Operation:
    """Return a conversion that shuffles with a temporary file."""
    run = partial(_convert, "d/", shards=SHARDS, seed=3)
    return Operation(
        "shuffle into shards", run, partial(_read, "d/"), partial(run, overwrite=True, seed=4)
    )


# Other things that write


def _write(site: Site, rows: int = 24, **options: Any) -> None:
    numbers = np.arange(rows)
    with rm.TFRecordWriter(site.output("w.tfrecord"), storage=site.storage, **options) as writer:
        for first in range(0, rows, 8):
            writer.write({"n": numbers[first : first + 8]})


def _writers() -> Iterator[Operation]:
    single = Operation(
        "TFRecordWriter",
        _write,
        partial(_read, "w.tfrecord"),
        partial(_write, rows=7, overwrite=True),
    )
    yield single
    yield replace(
        single,
        kind="TFRecordWriter overwrites",
        run=partial(_write, overwrite=True),
        before=partial(_write, rows=9),
    )
    yield Operation(
        "TFRecordWriter, shards",
        partial(_write, shards=SHARDS),
        partial(_read, ""),
        partial(_write, rows=7, shards=OTHER_SHARDS, overwrite=True),
    )
    yield Operation(
        "TFRecordWriter overwrites shards",
        partial(_write, shards=SHARDS, overwrite=True),
        partial(_read, ""),
        partial(_write, rows=7, shards=OTHER_SHARDS, overwrite=True),
        partial(_write, rows=9, shards=OTHER_SHARDS),
    )
    yield Operation(
        "TFRecordWriter replaces shards",
        partial(_write, shards=SHARDS, overwrite=True),
        partial(_read, ""),
        partial(_write, rows=7, shards=OTHER_SHARDS, overwrite=True),
        partial(_write, rows=9, shards=SHARDS),
    )
    raw = partial(_write_records, "w.tfrecord")
    yield Operation(
        "tfrecord.write_records",
        raw,
        partial(_read_records, "w.tfrecord"),
        partial(raw, rows=7, overwrite=True),
    )


def _write_records(name: str, site: Site, rows: int = 24, **options: Any) -> None:
    records = [b"%d" % number for number in range(rows)]
    rm.tfrecord.write_records(site.output(name), records, storage=site.storage, **options)


def _read_records(name: str, site: Site) -> str:
    records = rm.tfrecord.records(site.output(name), storage=site.storage)
    return _digest({"n": [int(each) for each in records]})


def _indexes() -> Iterator[Operation]:
    data = partial(_write, index=False)
    yield Operation("index", _index, partial(_read, "w.tfrecord"), _index, data)
    yield Operation(
        "index as text",
        partial(_index, text=True),
        _read_text_index,
        partial(_index, text=True),
        data,
    )


def _index(site: Site, **options: Any) -> None:
    rm.index(site.output("w.tfrecord"), storage=site.storage, **options)


def _read_text_index(site: Site) -> str:
    """Read with the index, if it is there."""
    path = site.output("w.tfrecord")
    index = f"{path}.idx" if os.path.exists(f"{path}.idx") else None
    return _digest({"n": rm.open(path, index=index)["n"][:]})


def _damaged(site: Site) -> None:
    """Write a file with a damaged record."""
    _write_records("damaged.tfrecord", site)
    with open(site.output("damaged.tfrecord"), "r+b") as file:
        file.seek(12)
        file.write(b"?")


def _repair(site: Site, **options: Any) -> None:
    rm.repair(site.output("damaged.tfrecord"), site.output("sound.tfrecord"), **options)


def _damaged_and_repaired(site: Site) -> None:
    """Leave what a repair of an older file wrote, with its index."""
    _damaged(site)
    shutil.copy(site.output("damaged.tfrecord"), site.output("sound.tfrecord"))
    _write_records("sound.tfrecord", site, rows=9, overwrite=True)
    rm.index(site.output("sound.tfrecord"), text=True)


def _repairs() -> Iterator[Operation]:
    again = partial(_repair, overwrite=True)
    read = partial(_read_records, "sound.tfrecord")
    yield Operation("repair", _repair, read, again, _damaged)
    yield Operation("repair overwrites", again, read, again, _damaged_and_repaired)


def _in_store(operations: Iterable[Operation]) -> Iterator[Operation]:
    """Yield what writes to a store.

    Formats that are made in local space go the same way from there, so of most of them, only the
    conversion to a file is disturbed. That is also where the calls in local space are.
    """
    formats = ("", "tfrecord", "npy", "hdf5", "zarr", "tfds")
    for operation in operations:
        kind, file = operation.kind, operation.kind == "write a file"
        if kind not in ("index as text", "repair", "repair overwrites", "shuffle into shards") and (
            file or operation.format in formats
        ):
            yield replace(
                operation, kind=f"{kind}, in a store", in_store=True, requests_only=not file
            )


def _large(site: Site) -> None:
    """Write a file that does not fit into one part of an upload."""
    # Small integers would take three bytes each.
    np.save(site.input("large.npy"), np.arange(1_400_000.0).reshape(700, 2000))


def _in_parts(act: Act, site: Site) -> None:
    """Write with uploads of the smallest parts that stores take."""
    least = UploadParts(5 << 20, 2)
    for module in (budget, engine):
        vars(module)["choose_parts"] = lambda *_: least
    with sending(least):
        act(site)


def _write_large(site: Site, rows: int = 700, **options: Any) -> None:
    data = np.load(site.input("large.npy"), mmap_mode="r")[:rows]
    with rm.TFRecordWriter(site.output("x.tfrecord"), storage=site.storage, **options) as writer:
        writer.write({"data": data})


def _uploads() -> Iterator[Operation]:
    """Yield what is sent in parts."""
    convert = partial(_convert, "x.tfrecord", source="large.npy")
    writers: dict[str, tuple[Act, Act]] = {
        "write a file": (convert, partial(convert, rows=slice(5, 600), overwrite=True)),
        "TFRecordWriter": (_write_large, partial(_write_large, rows=600, overwrite=True)),
    }
    for name, acts in writers.items():
        run, changed = (partial(_in_parts, each) for each in acts)
        kind, read = f"{name} in parts, in a store", partial(_read, "x.tfrecord")
        yield Operation(kind, run, read, changed, _large, in_store=True)


def _cache_fills() -> Iterator[Operation]:
    """Yield readings of objects through the disk cache."""
    for format in ("tfrecord", "npy", "hdf5"):
        name = f"x{FORMATS[format]}"
        read = partial(_read, name)
        made = partial(_convert, name)
        yield Operation("fill the cache", read, read, read, made, format, in_store=True)


def _all() -> Iterator[Operation]:
    local = [*_conversions(), _shuffled(), *_writers(), *_indexes(), *_repairs()]
    yield from local
    yield from _in_store(local)
    yield from _uploads()
    yield from _cache_fills()


OPERATIONS = {operation.name: operation for operation in _all()}
