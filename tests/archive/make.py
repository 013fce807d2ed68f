"""Write a small file of every kind that recmap writes, to be read by every later version.

    python -m tests.archive.make tests/archive/0.3

makes the folder of a version, once, when that version is finished; folders are never made again.
``expected.json`` says what is in them. Chains and tables are only ever added to: the folders of
old versions refer to them by name.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import recmap as rm

__all__ = ["CHAINS", "HERE", "TIME", "UNFINISHED", "files_in", "numbers", "plain", "table"]

#: Manifests and indexes hold the times of files and absolute paths, which a checkout changes.
TIME = 1_577_836_800_000_000_000
HERE = "@HERE@"
UNFINISHED: dict[str, Any] = {"shards": 6, "workers": 1, "memory": "1MB"}
_ROWS, _MANY = 6, 60


def table(name: str) -> dict[str, Any]:
    """Return the columns of a table by its name."""
    numbers = {
        "x": np.arange(_ROWS),
        "small": np.arange(_ROWS, dtype=np.uint8) + 250,
        "f": np.linspace(0, 1, 2 * _ROWS, dtype=np.float32).reshape(_ROWS, 2),
    }
    if name == "one":
        return {"data": numbers["f"]}
    if name == "dense":
        return numbers
    return numbers | {
        "t": rm.Ragged.from_rows([np.arange(i % 3) for i in range(_ROWS)], np.int64),
        "text": rm.Ragged.from_text([f"é{i}" * (i % 3) for i in range(_ROWS)]),
        "raw": rm.Ragged.from_bytes([bytes([i, 0, 255]) for i in range(_ROWS)]),
    }


#: Each file: the table in it, and how it is written.
FILES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain.tfrecord": ("all", {}),
    "gzip.tfrecord.gz": ("all", {}),
    "zlib.tfrecord.zlib": ("all", {"compression": "zlib", "format": "tfrecord"}),
    "aligned.tfrecord": ("dense", {"align": 64}),
    "bare.tfrecord": ("all", {"options": {"describe": False}}),
    "x.npy": ("one", {}),
    "x.raw": ("one", {"format": "raw"}),
    "x.npz": ("all", {}),
    "deflated.npz": ("all", {"compression": "deflate"}),
    "x.h5": ("all", {}),
    "gzip.h5": ("all", {"compression": "gzip"}),
    "x.zarr": ("all", {}),
    "x.parquet": ("all", {}),
    "x.arrow": ("all", {}),
    "shards/": ("all", {"shards": 3}),
    "shards_npz/": ("all", {"shards": 2, "format": "npz"}),
    "shards_parquet/": ("all", {"shards": "2 rows", "format": "parquet"}),
    "tfds/small/1.0.0": ("all", {"format": "tfds", "split": "train", "name": "small"}),
}


def double(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "x": row["x"] * 2}


def odd(row: dict[str, Any]) -> bool:
    return bool(row["x"] % 2)


#: Pipelines over many.tfrecord, whose states are kept after two batches.
CHAINS: dict[str, Callable[[rm.Dataset], rm.Stream]] = {
    "rows": lambda ds: ds.shuffle(seed=3),
    "batch": lambda ds: ds.batch(4),
    "shuffle": lambda ds: ds.shuffle(seed=1).batch(4, drop_last=True),
    "window": lambda ds: ds.shuffle(seed=1, window=16).batch(4),
    "map": lambda ds: ds.shuffle(seed=2).map(double).batch(7),
    "filter": lambda ds: ds.filter(odd).skip(2).take(20).batch(3).repeat(2),
    "select": lambda ds: ds.select("x", "t").select(range(5, 50)).batch(4).skip(1),
    "repeat": lambda ds: ds.take(10).repeat(3).batch(4).take(6),
    "bucket": lambda ds: ds.shuffle(seed=1).bucket("t", [2]).batch([5, 3]),
    "pack": lambda ds: ds.shuffle(seed=1).pack(7, ["t"]).batch(3),
    "mix": lambda ds: rm.mix(ds, ds.map(double), weights=[2, 1], seed=4).batch(5).take(9),
    "zip": lambda ds: rm.zip(ds.select("x"), ds.select("t").shuffle(seed=1)).batch(6),
    "rank 0": lambda ds: ds.shuffle(seed=1).batch(4).shard(0, 2),
    "rank 1": lambda ds: ds.shuffle(seed=1).batch(4).shard(1, 2),
}


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it."""
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, list | tuple):
        return list(map(plain, value))
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return plain(value.tolist()) if hasattr(value, "tolist") else value


def numbers(batch: dict[str, Any]) -> list[Any]:
    """Return what tells the rows of a batch."""
    return [plain(batch[name]) for name in ("x", "t") if name in batch]


def files_in(folder: Path) -> Iterator[Path]:
    yield from sorted(path for path in folder.rglob("*") if path.is_file())


def make(folder: Path) -> None:
    """Make the folder of a version."""
    folder.mkdir(parents=True)
    os.chdir(folder)
    expected: dict[str, Any] = {"version": rm.__version__, "files": {}}
    for name, (kind, options) in FILES.items():
        rm.from_arrays(table(kind)).save(name, **options)
        opened = _opened(name)
        expected["files"][name] = {"open": opened, **_contents(rm.open(name, **opened))}
    tokens = rm.Ragged.from_rows([np.full(i % 5, i) for i in range(_MANY)], np.int64)
    rm.from_arrays({"x": np.arange(_MANY), "t": tokens}).save("many.tfrecord")
    _break_off()
    _settle(folder)
    for file in files_in(folder):
        if ".tfrecord" in file.name and not file.name.startswith("."):
            rm.index(file)
    rm.index("plain.tfrecord", text=True)
    expected["states"] = {name: _state(chain) for name, chain in CHAINS.items()}
    expected["torch"] = _torch_state()
    text = json.dumps(expected, ensure_ascii=False, indent=1)
    Path("expected.json").write_text(text + "\n", "utf-8")


def _opened(name: str) -> dict[str, Any]:
    if name == "x.raw":
        return {"format": "raw"}
    return {"compression": "zlib", "format": "tfrecord"} if name.endswith(".zlib") else {}


def _contents(ds: rm.Dataset) -> dict[str, Any]:
    schema = {name: str(field) for name, field in ds.schema.items()}
    return {"schema": schema, "rows": plain([dict(row) for row in ds])}


class _StoppedError(Exception):
    pass


def _break_off() -> None:
    """Leave a conversion after two of its shards."""

    def progress(done: Any) -> None:
        if done.rows >= _MANY // 3:
            raise _StoppedError

    try:
        rm.convert("many.tfrecord", "unfinished/", progress=progress, **UNFINISHED)
    except _StoppedError:
        # How many shards there are by now differs from time to time.
        for file in Path("unfinished").glob("*data-0000[2-9]-*"):
            file.unlink()
        (done,) = Path("unfinished").glob("*.done-*")
        done.write_text("".join(sorted(done.read_text().splitlines(keepends=True))[:2]))
        return
    raise AssertionError("it was to be broken off")


def _settle(folder: Path) -> None:
    """Give every file one time, and write it and the folder into the manifests."""
    times = {str(file.stat().st_mtime_ns) for file in files_in(folder)}
    for file in list(files_in(folder)):
        if "manifest.json" in file.name:
            text = file.read_text("utf-8").replace(str(folder), HERE)
            text = re.sub(r"\d{19}", lambda found: _time(found[0], times), text)
            file.write_text(text, "utf-8")
            named = file.with_name(re.sub(r"done-\w+", "done-000000000000", file.name))
            shutil.move(file, named)
    for file in files_in(folder):
        os.utime(file, ns=(TIME, TIME))


def _time(found: str, times: set[str]) -> str:
    assert found in times, f"{found} is not the time of a file"
    return str(TIME)


def _state(chain: Callable[[rm.Dataset], rm.Stream]) -> dict[str, Any]:
    """Take two batches, and return the state there and the rows that are left."""
    pipeline = chain(rm.open("many.tfrecord"))
    batches = iter(pipeline)
    for _ in range(2):
        next(batches)
    state = pipeline.state()
    return {"state": state, "rest": [numbers(batch) for batch in batches]}


def _torch_state() -> dict[str, Any]:
    loader: Any = rm.open("many.tfrecord").shuffle(seed=1).select("x").batch(4).to_torch()
    batches = iter(loader)
    for _ in range(2):
        next(batches)
    state = loader.state_dict()
    return {"state": state, "rest": [batch["x"].tolist() for batch in batches]}


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve())
