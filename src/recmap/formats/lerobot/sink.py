"""Writing LeRobot datasets, version 3.0.

The shards are the Parquet files in ``data``, with whole episodes in each. What is in ``meta`` comes
last: statistics, tasks, episodes, and ``info.json``, which makes the folder a dataset.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from recmap.errors import OptionError, OutputExistsError
from recmap.formats.lerobot.frames import Frames, arrange
from recmap.formats.lerobot.metadata import INFO
from recmap.formats.open_spec import OpenOptions, open_source
from recmap.formats.parquet import ParquetSink
from recmap.formats.sink import SinkKind, Written
from recmap.local.local_path import located
from recmap.local.location import Location
from recmap.local.output import Output
from recmap.model.field import BYTES, Field
from recmap.model.schema import Schema
from recmap.model.source import Source

_CHUNK, _FILE = "chunk-000", "file.parquet"
_EPISODES = f"meta/episodes/{_CHUNK}/file-000.parquet"
_TEMPLATE = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
# LeRobot sorts files by name, and numbers them with three digits.
_MOST_FILES = 1000
# What LeRobot keeps in mind to add to a dataset: the size of its files in MB.
_DATA_SIZE, _VIDEO_SIZE = 100, 200
_MOST_MANIFEST = 256 << 20
_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


class LeRobotShard(ParquetSink):
    """Writes frames. Columns of bytes are images: structs of their bytes and no path."""

    def __init__(
        self,
        output: Output,
        schema: Schema,
        *,
        fps: float | None = None,
        episodes: str | None = None,
        task: str | None = None,
        instruction: str | None = None,
        robot_type: str | None = None,
        compression: Literal["zstd", "snappy", "gzip", "lz4", "brotli"] | None = "snappy",
        row_group_rows: int | None = None,
        room: int | None = None,
    ) -> None:
        del fps, episodes, task, instruction, robot_type  # for the rows and the metadata
        self._images = [name for name, field in schema.items() if field == Field(BYTES)]
        self._arrow_schema: Any = None
        super().__init__(
            output,
            schema,
            compression=compression,
            row_group_rows=row_group_rows,
            tensors="list",
            room=room,
        )

    def begin(self, file: Any, empty: Any, metadata: Mapping[bytes, bytes]) -> None:
        del metadata  # the types are those of LeRobot
        fields = [
            field.with_type(_IMAGE if field.name in self._images else _plain(field.type))
            for field in pa.RecordBatchReader.from_stream(empty).schema
        ]
        features = {"info": {"features": _library_features(self.schema)}}
        told = {b"huggingface": json.dumps(features).encode()}
        self._arrow_schema = pa.schema(fields, told)
        self._open_writer(file, self._arrow_schema)

    def write_group(self, rows: Any) -> None:
        table = pa.RecordBatchReader.from_stream(rows).read_all()
        columns = []
        for field in self._arrow_schema:
            column = table[field.name].combine_chunks()
            if field.name in self._images:
                missing = pa.nulls(len(column), pa.string())
                column = pa.StructArray.from_arrays(
                    [column.cast(pa.binary()), missing], fields=list(_IMAGE)
                )
            else:
                column = column.cast(field.type)
            columns.append(column)
        made = pa.Table.from_arrays(columns, schema=self._arrow_schema)
        self._writer.write_table(made, row_group_size=made.num_rows)


def _plain(type: Any) -> Any:
    return pa.string() if pa.types.is_large_string(type) else type


def _library_features(schema: Schema) -> dict[str, Any]:
    """Return the types of columns as ``datasets`` notes them, for who opens a file alone."""
    made: dict[str, Any] = {}
    for name, field in schema.items():
        if field == Field(BYTES):
            made[name] = {"_type": "Image"}
            continue
        dtype = "string" if field.is_bytes else field.dtype.name
        value = {"dtype": dtype, "_type": "Value"}
        if len(field.shape) > 1:
            made[name] = {"shape": list(field.shape), "dtype": dtype,
                          "_type": f"Array{len(field.shape)}D"}  # fmt: skip
        elif field.shape:
            made[name] = {"feature": value, "length": field.shape[0], "_type": "Sequence"}
        else:
            made[name] = value
    return made


# The folder.


def data_path(folder: str, options: Mapping[str, Any]) -> str:
    """Return the path that those of the shards are made of."""
    del options
    return located(located(folder).child("")).child(f"data/{_CHUNK}/{_FILE}")


def data_names(name: str, count: int) -> list[str]:
    """Return the names of so many shards."""
    if count > _MOST_FILES:
        raise OptionError(
            f"{count:,} files are too many: LeRobot sorts the names of at most {_MOST_FILES:,}; "
            "write larger ones"
        )
    stem = name.removesuffix(".parquet")
    return [f"{stem}-{number:03d}.parquet" for number in range(count)]


def _folder_of(path: str) -> Location:
    """Return the folder of the dataset that a path of ``data_path`` is in."""
    return located(path).folder.parent.parent


def check_folder(path: str, schema: Schema, shards: Sequence[str], overwrite: bool) -> None:
    """Refuse a folder with files that LeRobot would read together with the new ones."""
    del schema, overwrite  # files that would be replaced are checked by the manifest
    folder = _folder_of(path)
    ours = {os.path.basename(shard) for shard in shards} | _listed(path)
    expected = {"data": ours, "meta/episodes": {os.path.basename(_EPISODES)}}
    for inside, names in expected.items():
        parent = folder.child(inside)
        for chunk in parent.folders():
            for name in parent.child(chunk).children():
                if name.endswith(".parquet") and (chunk != _CHUNK or name not in names):
                    raise OutputExistsError(
                        f"{parent.child(f'{chunk}/{name}')} would be read together with the new "
                        "files; delete the old dataset, or write elsewhere"
                    )


def _listed(path: str) -> set[str]:
    """Return the names of the shards that the manifest of an earlier conversion lists."""
    manifest = located(path).sibling(f".{os.path.basename(path)}.manifest.json")
    found = manifest.read_whole(_MOST_MANIFEST)
    try:
        content = json.loads(found[0]) if found else {}
    except (ValueError, RecursionError):
        return set()
    lists = [content.get(key) for key in ("files", "replaces")] if isinstance(content, dict) else []
    entries = [entry for each in lists if isinstance(each, list) for entry in each]
    return {str(entry.get("file")) for entry in entries if isinstance(entry, dict)}


def complete_folder(written: Written) -> None:
    """Write what is in ``meta``."""
    frames = written.source
    assert isinstance(frames, Frames)
    assert written.stats is not None
    folder, schema = _folder_of(written.path), frames.schema
    rows = open_source(list(written.shards), dict(schema), OpenOptions(format="lerobot"))
    stats = {
        name: {what: values.tolist() for what, values in each.items()}
        for name, each in written.stats(rows, list(frames.images)).items()
    }
    _save(folder.child("meta/stats.json"), json.dumps(stats, indent=4).encode())
    _save(folder.child("meta/tasks.parquet"), _parquet(_tasks(frames)))
    _save(folder.child(_EPISODES), _parquet(_episodes(frames, written.rows)))
    info = _info(frames, written.options)
    _save(folder.child(INFO), json.dumps(info, indent=4, ensure_ascii=False).encode())


def _save(file: Location, content: bytes) -> None:
    file.write_whole(content)


def _parquet(table: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, compression="snappy")
    return file.getvalue()


def _tasks(frames: Frames) -> Any:
    """Return the tasks as pandas keeps them: LeRobot looks them up in the index of a frame."""
    columns = {"task_index": list(frames.tasks.values()), "task": list(frames.tasks)}
    types = {"task_index": ("int64", "int64"), "task": ("unicode", "object")}
    told = {
        "index_columns": ["task"],
        "column_indexes": [],
        "columns": [
            {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": dtype,
             "metadata": None}
            for name, (kind, dtype) in types.items()
        ],
        "pandas_version": "2.2.0",
    }  # fmt: skip
    schema = pa.schema([("task_index", pa.int64()), ("task", pa.string())])
    return pa.table(columns, schema.with_metadata({b"pandas": json.dumps(told).encode()}))


def _episodes(frames: Frames, rows: Sequence[int]) -> Any:
    """Return the table of episodes. ``rows`` has the number of frames in each file."""
    starts = frames.starts
    ends = np.cumsum(np.asarray(rows, np.int64))
    count = len(starts) - 1
    zeros = np.zeros(count, np.int64)
    numbers: dict[str, npt.NDArray[np.int64]] = {
        "episode_index": np.arange(count, dtype=np.int64),
        "length": np.diff(starts),
        "data/chunk_index": zeros,
        "data/file_index": np.searchsorted(ends, starts[:-1], side="right"),
        "dataset_from_index": starts[:-1],
        "dataset_to_index": starts[1:],
        "meta/episodes/chunk_index": zeros,
        "meta/episodes/file_index": zeros,
    }
    columns = {name: pa.array(values, pa.int64()) for name, values in numbers.items()}
    tasks = pa.array(frames.episode_tasks, pa.list_(pa.string()))
    return pa.table({"episode_index": columns.pop("episode_index"), "tasks": tasks, **columns})


def _info(frames: Frames, options: Mapping[str, Any]) -> dict[str, Any]:
    episodes = len(frames.starts) - 1
    return {
        "codebase_version": "v3.0",
        "robot_type": options.get("robot_type"),
        "total_episodes": episodes,
        "total_frames": len(frames),
        "total_tasks": len(frames.tasks),
        "chunks_size": _MOST_FILES,
        "data_files_size_in_mb": _DATA_SIZE,
        "video_files_size_in_mb": _VIDEO_SIZE,
        "fps": frames.rate.fps,
        "splits": {"train": f"0:{episodes}"},
        "data_path": _TEMPLATE,
        "video_path": None,
        "features": {name: _feature(name, field, frames) for name, field in frames.schema.items()},
    }


def _feature(name: str, field: Field, frames: Frames) -> dict[str, Any]:
    if name in frames.images:
        shape, axes = list(frames.images[name]), ["height", "width", "channels"]
        return {"dtype": "image", "shape": shape, "names": axes}
    dtype = "string" if field.is_bytes else field.dtype.name
    return {"dtype": dtype, "shape": list(field.shape) or [1], "names": None}


def starts_of(source: Source) -> npt.NDArray[np.int64]:
    """Return the rows that a file may begin with."""
    assert isinstance(source, Frames)
    return source.starts


SINK = SinkKind(
    LeRobotShard,
    streams=True,
    untyped=True,
    column_bytes=12_000,
    names=data_names,
    place=data_path,
    arrange=arrange,
    starts=starts_of,
    begin=check_folder,
    complete=complete_folder,
)
