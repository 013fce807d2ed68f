"""What the files in ``meta`` say: features, episodes and tasks, of versions 2.0, 2.1 and 3.0.

Up to 2.1, an episode is a Parquet file and a video for each camera; tables are JSON lines. In 3.0,
files have many episodes, and tables are Parquet. Nothing here is trusted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError
from recmap.formats.open_spec import OpenOptions, open_source
from recmap.formats.video import inside
from recmap.local.location import Location
from recmap.model.field import Field
from recmap.model.schema import Batch

INFO = "meta/info.json"
VERSIONS = ("v2.0", "v2.1", "v3.0")
# Names of the columns in which pandas keeps the tasks.
_TASK_NAMES = ("__index_level_0__", "task")
_MOST_TEXT, _MOST_ROWS, _MOST_SIDE = 1 << 30, 1 << 40, 1 << 14
_PLACE = re.compile(r"\{(\w+)(?::0?(\d)d)?\}")
_NUMBERS = frozenset(
    ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
     "float32", "float64")
)  # fmt: skip

Numbers = npt.NDArray[np.int64]
Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True)
class CameraVideos:
    """The videos of a camera: the file of each episode, and where the episode lies in it."""

    size: tuple[int, int]
    files: Sequence[Location]
    numbers: Numbers
    begins: Seconds
    ends: Seconds


@dataclass(frozen=True)
class LeRobotMeta:
    """A dataset: the fields of its columns, its episodes in the order of their rows, its tasks."""

    fields: Mapping[str, Field]
    images: Sequence[str]
    data: Sequence[Location]
    episodes: Numbers
    lengths: Numbers
    cameras: Mapping[str, CameraVideos]
    tasks: Mapping[int, str]
    rate: float


def load_meta(folder: Location) -> LeRobotMeta:
    """Read and check the metadata of a folder."""
    file = folder.child(INFO)
    info = _json(file, _text(file))
    version = info.get("codebase_version")
    if version not in VERSIONS:
        raise DataError(
            f"{file}: codebase_version is {str(version)[:40]!r}; recmap reads "
            f"{', '.join(VERSIONS)} (LeRobot converts older ones)",
            file=str(file),
        )
    reader = _Reader(folder, file, info)
    return reader.in_tables() if version == "v3.0" else reader.in_lines()


class _Reader:
    def __init__(self, folder: Location, file: Location, info: Mapping[str, Any]) -> None:
        self._folder, self._file, self._info = folder, file, info
        features = info.get("features")
        if not isinstance(features, dict) or not features:
            raise self._error("has no features")
        self._features = {name: self._feature(name, each) for name, each in features.items()}

    def _error(self, reason: str) -> DataError:
        return DataError(f"{self._file}: {reason}", file=str(self._file))

    def _feature(self, name: str, told: Any) -> tuple[str, tuple[int, ...], Sequence[str]]:
        """Return the dtype, the shape and the names of the axes of a feature."""
        kind = told.get("dtype") if isinstance(told, dict) else None
        shape = told.get("shape") if isinstance(told, dict) else None
        if not isinstance(kind, str) or not isinstance(shape, list):
            raise self._error(f"feature {name!r} has no dtype or no shape")
        if not all(type(axis) is int and 0 < axis < 1 << 31 for axis in shape):
            raise self._error(f"feature {name!r} has the shape {str(shape)[:80]}")
        names = told.get("names")
        named = names if isinstance(names, list) and all(isinstance(n, str) for n in names) else ()
        return kind, tuple(shape), named

    def in_lines(self) -> LeRobotMeta:
        """Read the tables of versions 2.0 and 2.1."""
        rows = self._lines("meta/episodes.jsonl")
        episodes = self._column(rows, "episode_index")
        lengths = self._column(rows, "length")
        chunk = self._whole("chunks_size", least=1)
        told = self._lines("meta/tasks.jsonl")
        numbers = self._column(told, "task_index").tolist()
        tasks = {n: str(row.get("task")) for n, row in zip(numbers, told, strict=True)}
        at = [{"episode_index": int(n), "episode_chunk": int(n) // chunk} for n in episodes]
        data = [self._path("data_path", each) for each in at]
        cameras = {
            name: CameraVideos(
                size,
                [self._path("video_path", {**each, "video_key": name}) for each in at],
                np.arange(len(at)),
                np.zeros(len(at)),
                np.full(len(at), np.inf),
            )
            for name, size in self._cameras().items()
        }
        return self._checked(data, episodes, lengths, cameras, tasks)

    def in_tables(self) -> LeRobotMeta:
        """Read the tables of version 3.0."""
        keys = list(self._cameras())
        wanted = ["episode_index", "length", "data/chunk_index", "data/file_index"]
        ends = ("chunk_index", "file_index", "from_timestamp", "to_timestamp")
        wanted += [f"videos/{key}/{end}" for key in keys for end in ends]
        found = self._table(self._folder.child("meta/episodes/*/*.parquet"), wanted)
        order = np.argsort(found["episode_index"], kind="stable")
        found = {name: column[order] for name, column in found.items()}
        data, _ = self._files("data_path", found, "data", {})
        cameras = {}
        for key, size in self._cameras().items():
            files, numbers = self._files("video_path", found, f"videos/{key}", {"video_key": key})
            begins, stops = (found[f"videos/{key}/{end}"].astype(np.float64) for end in ends[2:])
            cameras[key] = CameraVideos(size, files, numbers, begins, stops)
        episodes, lengths = found["episode_index"], found["length"]
        return self._checked(data, episodes, lengths, cameras, self._tasks())

    def _tasks(self) -> dict[int, str]:
        file = self._folder.child("meta/tasks.parquet")
        table = open_source(file, None, _PARQUET)
        kinds = {name: str(field) for name, field in table.schema.items()}
        name = next((each for each in _TASK_NAMES if kinds.get(each) == "text"), None)
        if name is None or kinds.get("task_index") != "int64":
            raise DataError(f"{file} has no tasks: {table.schema}", file=str(file))
        read = table.read(0, len(table))
        return dict(zip(np.asarray(read["task_index"]).tolist(), read[name], strict=True))

    def _files(
        self, template: str, table: Mapping[str, Any], prefix: str, more: Mapping[str, Any]
    ) -> tuple[list[Location], Numbers]:
        """Return the files of all episodes, and which of them has each."""
        pairs = np.stack([table[f"{prefix}/chunk_index"], table[f"{prefix}/file_index"]], axis=1)
        number = dict[tuple[int, int], int]()
        which = [number.setdefault((int(c), int(f)), len(number)) for c, f in pairs]
        files = [
            self._path(template, {**more, "chunk_index": chunk, "file_index": file})
            for chunk, file in number
        ]
        return files, np.array(which, np.int64)

    def _checked(
        self,
        data: Sequence[Location],
        episodes: Numbers,
        lengths: Numbers,
        cameras: Mapping[str, CameraVideos],
        tasks: Mapping[int, str],
    ) -> LeRobotMeta:
        if (lengths < 1).any() or int(lengths.astype(float).sum()) > _MOST_ROWS:
            raise self._error("an episode has no frames, or too many")
        if len(np.unique(episodes)) != len(episodes):
            raise self._error("two episodes have the same episode_index")
        for name, found in (("episodes", len(episodes)), ("frames", int(lengths.sum()))):
            told = self._whole(f"total_{name}")
            if told != found:
                raise self._error(f"total_{name} is {told:,}, but the episodes add up to {found:,}")
        rate = self._info.get("fps")
        if not isinstance(rate, int | float) or not 0 < rate < 1e6:
            raise self._error(f"fps is {str(rate)[:40]}")
        kinds = {name: kind for name, (kind, _, _) in self._features.items()}
        images = [name for name, kind in kinds.items() if kind == "image"]
        fields = {
            name: self._field(name)
            for name, kind in kinds.items()
            if kind not in ("image", "video")
        }
        return LeRobotMeta(fields, images, data, episodes, lengths, cameras, tasks, float(rate))

    def _field(self, name: str) -> Field:
        kind, shape, _ = self._features[name]
        shape = () if shape == (1,) else shape
        if kind == "string" and not shape:
            return Field("text")
        if kind not in _NUMBERS:
            raise self._error(f"feature {name!r} has the dtype {kind[:40]!r}")
        return Field(kind, shape)

    def _cameras(self) -> dict[str, tuple[int, int]]:
        """Return the height and width of the frames of each camera."""
        found = {}
        for name, (kind, shape, axes) in self._features.items():
            if kind != "video":
                continue
            first = axes[0] if axes else "channels" if shape[0] <= 4 else "height"
            sides = shape[1:] if first in ("c", "channel", "channels") else shape[:2]
            if len(shape) != 3 or max(sides) > _MOST_SIDE or "/" in name or ".." in name:
                raise self._error(f"feature {name!r} is a video of the shape {shape}")
            found[name] = (sides[0], sides[1])
        return found

    def _path(self, template: str, values: Mapping[str, Any]) -> Location:
        """Fill in a template of paths. ``str.format`` would allow more than that."""
        text = self._info.get(template)
        if not isinstance(text, str):
            raise self._error(f"has no {template}")

        def filled(match: re.Match[str]) -> str:
            value = values.get(match[1])
            if value is None or (isinstance(value, int) and value < 0):
                raise self._error(f"{template} is {text[:200]!r}")
            return str(value).zfill(int(match[2] or 0))

        try:
            return inside(self._folder, _PLACE.sub(filled, text))
        except DataError as e:
            raise self._error(str(e)) from None

    def _whole(self, name: str, least: int = 0) -> int:
        value = self._info.get(name)
        if type(value) is not int or not least <= value < _MOST_ROWS:
            raise self._error(f"{name} is {str(value)[:40]}")
        return value

    def _lines(self, name: str) -> list[dict[str, Any]]:
        file = self._folder.child(name)
        return [_json(file, line) for line in _text(file).splitlines() if line.strip()]

    def _column(self, rows: Sequence[Mapping[str, Any]], name: str) -> Numbers:
        values = [row.get(name) for row in rows]
        bad = next((v for v in values if type(v) is not int or not 0 <= v < _MOST_ROWS), None)
        if bad is not None or None in values:
            raise self._error(f"in the tables next to it, {name} is {str(bad)[:40]}")
        return np.array(values, np.int64)

    def _table(self, pattern: Location, names: Sequence[str]) -> dict[str, Any]:
        table = open_source(pattern, names, _PARQUET)
        read: Batch = table.read(0, len(table))
        for name in names:
            floats = name.endswith("_timestamp")
            field = table.schema[name]
            if field.shape or field.has_nulls or field.dtype.kind not in ("f" if floats else "iu"):
                raise DataError(f"{pattern}: the column {name!r} is {field}")
            column = np.asarray(read[name])
            if not ((column >= 0) & (column < _MOST_ROWS)).all():
                raise DataError(f"{pattern}: the column {name!r} has an impossible value")
        return {name: np.asarray(read[name]) for name in names}


_PARQUET = OpenOptions(format="parquet")


def _text(file: Location) -> str:
    try:
        return file.text(_MOST_TEXT)
    except FileNotFoundError as e:
        raise DataError(f"{file} does not exist", file=str(file)) from e
    except ValueError as e:
        raise DataError(f"{file} is not text: {e}", file=str(file)) from e


def _json(file: Location, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise DataError(f"{file} is not JSON: {e}", file=str(file)) from e
    if not isinstance(found, dict):
        raise DataError(f"{file} has no JSON object", file=str(file))
    return found
