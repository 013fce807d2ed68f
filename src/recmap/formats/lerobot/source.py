"""A LeRobot folder as a source of rows: one for each frame.

Numbers come from the Parquet files. Frames of videos are decoded when they are read, by the time of
the row within its episode. ``task`` is the text of the row's task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError, OptionError
from recmap.formats.lerobot.metadata import CameraVideos, LeRobotMeta, load_meta
from recmap.formats.open_spec import OpenOptions, open_source
from recmap.formats.video import WantedFrames, decode_frames
from recmap.local.local_path import located
from recmap.local.location import Location
from recmap.local.whole_output import refuse_unfinished
from recmap.model.batch import Allocate, PaddedRows, PadSpec, RowArray, RowNumbers
from recmap.model.facts import SourceFacts
from recmap.model.field import Field, as_field
from recmap.model.info import Info
from recmap.model.ragged import Column, Ragged
from recmap.model.row_sizes import RowSizes, added, fitting
from recmap.model.schema import Batch, FieldsLike, Schema
from recmap.model.source import ColumnMap, MappedColumns, Source, WrappedSource

_TASK = "task"
_EPISODE, _TIME, _TASK_NUMBER = "episode_index", "timestamp", "task_index"


def open_lerobot(path: str, *, fields: FieldsLike | None = None) -> Source:
    """Open the folder of a dataset, which has ``meta/info.json``."""
    if not located(path).is_folder():
        return _open_shard(path, fields)
    folder = located(path).child("")
    meta = load_meta(folder)
    for name in (_EPISODE, _TIME, _TASK_NUMBER):
        if meta.fields.get(name, Field("bytes")) not in (Field("int64"), Field("float32")):
            raise DataError(f"{path}: the feature {name!r} is missing or not a number", file=path)
    if not meta.data:
        raise DataError(f"{path} has no episodes", file=path)
    _refuse_unfinished(meta.data)
    columns = {name: name for name in meta.fields}
    columns |= {name: f"{name}/bytes" for name in meta.images}
    names = list(columns.values())
    stored = open_source(list(meta.data), names, OpenOptions(format="parquet"))
    maps = {
        name: _map(path, column, stored.schema[column], meta.fields.get(name))
        for name, column in columns.items()
    }
    return LeRobotSource(MappedColumns(stored, maps), meta, path)


def _open_shard(path: str, fields: FieldsLike | None) -> Source:
    """Open one of the Parquet files, with the columns that were written."""
    if not isinstance(fields, Mapping):
        raise OptionError(f"{path}: a LeRobot dataset is opened by its folder")
    stored = open_source(path, None, OpenOptions(format="parquet"))
    maps = {}
    for name, field in fields.items():
        column = name if name in stored.schema else f"{name}/bytes"
        told = None if field is None else as_field(field)
        maps[name] = _map(path, column, stored.schema[column], told)
    return MappedColumns(stored, maps)


def _refuse_unfinished(files: Sequence[Location]) -> None:
    """Raise if a conversion still writes these files: recmap writes them into one folder."""
    folders = {file.folder for file in files}
    if len(folders) == 1:
        (folder,) = folders
        names = [file.name for file in files]
        refuse_unfinished(folder, folder.children(), lambda n: folder.child(n).content(), names)


def _map(path: str, name: str, stored: Field, told: Field | None) -> ColumnMap:
    """Return how a column is read: with the shape of the feature, and the dtype of the file."""
    if told is None or stored.shape == told.shape:
        return ColumnMap(name, stored)
    if len(stored.shape) != len(told.shape) or stored.has_nulls:
        raise DataError(f"{path}: {name!r} is {stored} in its files, but {told} in meta", file=path)
    convert = partial(_regular, path=path, name=name, shape=told.shape)
    return ColumnMap(name, Field(stored.dtype, told.shape), convert)


def _regular(
    column: Column, rows: RowNumbers, *, path: str, name: str, shape: tuple[int | None, ...]
) -> npt.NDArray[Any]:
    """Return lists that all have the lengths of a shape as an array."""
    if isinstance(column, Ragged):
        if (column.lengths != shape[0]).any():
            raise DataError(f"{path}: {name!r} has lists that are not {shape[0]} long", file=path)
        inner = _regular(column.flat, rows, path=path, name=name, shape=shape[1:])
        return inner.reshape(len(column), *map(int, filter(None, shape)))
    if column.shape[1:] != shape:
        raise DataError(f"{path}: {name!r} has lists that are not {shape} long", file=path)
    return column


class LeRobotSource(WrappedSource):
    """The frames of all episodes, in their order."""

    keeps_rows = True

    def __init__(self, rows: Source, meta: LeRobotMeta, path: str) -> None:
        super().__init__(rows)
        self._meta, self._path = meta, path
        self._starts = np.concatenate([[0], np.cumsum(meta.lengths)])
        schema = dict(rows.schema)
        schema |= {n: Field("uint8", (*c.size, 3)) for n, c in meta.cameras.items()}
        if _TASK not in schema:
            schema[_TASK] = Field("text")
        self._schema = Schema(schema)
        known = rows.known_rows()
        if known is not None:
            self._check_rows(known)

    def _check_rows(self, found: int) -> None:
        if found != self._starts[-1]:
            raise DataError(
                f"{self._path}: the episodes have {int(self._starts[-1]):,} frames, but the "
                f"Parquet files {found:,} rows",
                file=self._path,
            )

    @property
    def schema(self) -> Schema:
        return self._schema

    def __len__(self) -> int:
        return int(self._starts[-1])

    def known_rows(self) -> int:
        return len(self)

    @property
    def facts(self) -> SourceFacts:
        told = super().facts
        return replace(told, format="lerobot", files=[self._path], can_pad=False, table_index=None)

    def info(self) -> Info:
        return replace(super().info(), format="lerobot")

    def select(self, names: Sequence[str]) -> Source:
        other = copy(self)
        other._schema = self._schema.select(names)  # noqa: SLF001  # a copy of this one
        helpers = {name: () for name in names if name in self._source.schema}
        if self._made(names):
            helpers |= dict.fromkeys((_EPISODE, _TIME, _TASK_NUMBER), ())
        if helpers:
            other._source = self._source.select(list(helpers))  # noqa: SLF001
        return other

    def _made(self, names: Sequence[str]) -> list[str]:
        """Return the columns that no Parquet file has."""
        added = {*self._meta.cameras, *({_TASK} - set(self._meta.fields))}
        return [name for name in names if name in added]

    def column(self, name: str) -> Column | None:
        return None if self._made([name]) else super().column(name)

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        stop = min(stop, len(self))
        room = None if limit is None else limit // 2
        if room is not None and stop > start:
            stop = start + fitting(self._frame_bytes(), stop - start, room)
        batch = self._source.read(start, stop, room)
        return self._with_frames(batch, np.arange(start, stop))

    def gather(self, rows: RowArray) -> Batch:
        return self._with_frames(self._source.gather(rows), rows)

    def read_padded(
        self, rows: RowNumbers, pads: Mapping[str, PadSpec], size: int, allocate: Allocate
    ) -> PaddedRows | None:
        return None

    def row_bytes(self) -> int:
        return super().row_bytes() + self._frame_bytes()

    def row_sizes(self, rows: RowArray) -> RowSizes | None:
        sizes = super().row_sizes(rows)
        return None if sizes is None else added(sizes, self._frame_bytes())

    def _frame_bytes(self) -> int:
        cameras = self._meta.cameras
        return sum(
            3 * cameras[n].size[0] * cameras[n].size[1] for n in self._schema if n in cameras
        )

    def _with_frames(self, batch: Batch, rows: npt.NDArray[np.int64]) -> Batch:
        made = self._made(list(self._schema))
        found = {name: column for name, column in batch.items() if name in self._schema}
        if made:
            rows = rows[: len(next(iter(batch.values())))]
            episodes = self._episodes(batch, rows)
            for name in made:
                camera = self._meta.cameras.get(name)
                found[name] = (
                    self._tasks(batch, rows)
                    if camera is None
                    else self._frames(camera, np.asarray(batch[_TIME]), episodes, rows)
                )
        return {name: found[name] for name in self._schema}

    def _episodes(self, batch: Batch, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the place of the episode of each row, and check that rows belong to it."""
        places = np.searchsorted(self._starts, rows, side="right") - 1
        told = np.asarray(batch[_EPISODE])
        wrong = np.flatnonzero(told != self._meta.episodes[places])
        if len(wrong):
            row = int(wrong[0])
            raise DataError(
                f"{self.row_name(int(rows[row]))}: {_EPISODE} is {int(told[row]):,}, but by the "
                f"lengths in meta it is {int(self._meta.episodes[places[row]]):,}",
                file=self._path,
                field=_EPISODE,
            )
        return places

    def _tasks(self, batch: Batch, rows: npt.NDArray[np.int64]) -> Ragged:
        numbers = np.asarray(batch[_TASK_NUMBER]).tolist()
        missing = [i for i, number in enumerate(numbers) if number not in self._meta.tasks]
        if missing:
            raise DataError(
                f"{self.row_name(int(rows[missing[0]]))}: there is no task "
                f"{numbers[missing[0]]:,} in meta",
                file=self._path,
                field=_TASK_NUMBER,
            )
        return Ragged.from_text([self._meta.tasks[number] for number in numbers])

    def _frames(
        self,
        camera: CameraVideos,
        times: npt.NDArray[np.floating],
        episodes: npt.NDArray[np.int64],
        rows: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.uint8]:
        seconds = camera.begins[episodes] + times
        reasons: dict[int, str] = {}
        beyond = ~((times > -0.5 / self._meta.rate) & (seconds < camera.ends[episodes]))
        for place in np.flatnonzero(beyond).tolist():
            reasons[place] = (
                f"{_TIME} is {times[place]:g} s, which is not in the episode, from "
                f"{camera.begins[episodes[place]]:g} to {camera.ends[episodes[place]]:g} s of "
                f"{camera.files[camera.numbers[episodes[place]]]}"
            )
        out = np.empty((len(rows), *camera.size, 3), np.uint8)
        if not reasons:
            files = camera.numbers[episodes]
            wanted = []
            for number in np.unique(files).tolist():
                places = np.flatnonzero(files == number)
                wanted.append(WantedFrames(camera.files[number], seconds[places], places))
            reasons = decode_frames(wanted, out, resize=False)
        if reasons:
            place = min(reasons)
            raise DataError(f"{self.row_name(int(rows[place]))}: {reasons[place]}", file=self._path)
        return out
