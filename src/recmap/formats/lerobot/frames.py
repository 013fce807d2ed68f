"""Rows as frames of a LeRobot dataset, with the columns that LeRobot adds.

Frames are numbered within their episode and in the dataset; their time follows from the rate. Tasks
are text, which is numbered. Images stay encoded; decoded ones become PNG.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import (
    ColumnError,
    DataError,
    Message,
    MissingPackageError,
    Option,
    OptionError,
    OptionTypeError,
)
from recmap.formats.episodes import as_png, find_episodes, is_frame, looked_at
from recmap.model.arguments import no_column
from recmap.model.batch import Allocate, PaddedRows, PadSpec, RowArray, RowNumbers
from recmap.model.facts import SourceFacts, with_facts
from recmap.model.field import BYTES, Field
from recmap.model.media import image_shape
from recmap.model.ragged import Column, Ragged
from recmap.model.row_sizes import RowSizes, added, measure
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source, WrappedSource, renamed, row_name

TIME, FRAME, EPISODE, INDEX, TASK = (
    "timestamp", "frame_index", "episode_index", "index", "task_index"
)  # fmt: skip
# The columns of every LeRobot dataset, which are computed.
COMPUTED = {
    TIME: Field("float32"),
    **{name: Field("int64") for name in (FRAME, EPISODE, INDEX, TASK)},
}
# Columns that say what is computed, in the order in which they are looked for.
_EPISODES, _TASKS = (EPISODE, "episode"), ("task", "language_instruction")
_PLACES = (FRAME, "step")
# How far the time of a frame may be from what the rate says, as LeRobot allows it.
_TOLERANCE = 1e-4
_NUMBERS = frozenset(
    ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
     "float32", "float64")
)  # fmt: skip
# LeRobot has no more axes.
_MOST_AXES = 5


@dataclass(frozen=True)
class Rate:
    """Frames per second: a whole number, or the nearest float."""

    fps: int | float

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Rate:
        """Return the rate that was given."""
        fps = options.get("fps")
        if fps is None:
            needed = Option("options", {"fps": 10})
            raise OptionError(
                Message('format="lerobot" needs ', needed, ", the number of frames per second")
            )
        number = isinstance(fps, int | float) and not isinstance(fps, bool)
        if not number or not 0 < fps < 1e6 or not math.isfinite(fps):
            raise OptionError(f"fps={fps!r}: give the number of frames per second, such as 10")
        return cls(int(fps) if fps == int(fps) else float(fps))

    def times(self, frames: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Return the seconds at which frames are shown, given their numbers in an episode."""
        return (frames / self.fps).astype(np.float32)


def arrange(source: Source, options: Mapping[str, Any]) -> Source:
    """Return the rows as frames; find their episodes and tasks."""
    rate = Rate.of(options)
    for name in ("episodes", "task", "instruction", "robot_type"):
        if not isinstance(options.get(name), str | None):
            raise OptionTypeError(f"{name}={options[name]!r}: give text")
    fields = source.schema
    if any(name.startswith("steps/") and field.ragged for name, field in fields.items()):
        steps = Option("unit", "steps", of_input=True)
        raise OptionError(
            Message(
                "each row is an episode, and LeRobot has a row for each step: open it with ", steps
            )
        )
    episodes = _told(source, options.get("episodes"), _EPISODES, "episodes", "episode")
    task = None
    if options.get("instruction") is None:
        task = _told(source, options.get("task"), _TASKS, "task", "task")
        if not fields[task].is_bytes or fields[task].shape:
            raise ColumnError(f"task={task!r}: the column is {fields[task]}, not text")
    elif options.get("task") is not None:
        raise OptionError("give task, the name of a column, or instruction, the text of all tasks")
    checked = [n for n in (TIME, *_PLACES) if n in fields and n != episodes]
    left_out = {episodes, task, *checked}
    if COMPUTED.keys() <= fields.keys():  # these are the rows of a LeRobot dataset
        left_out.update(COMPUTED)
    columns = {name: _name(name) for name in fields if name not in left_out}
    _check_names(columns)
    for name in columns:
        _check_field(name, fields[name])
    for name in checked:
        if fields[name].shape or fields[name].dtype.kind not in "iuf":
            raise ColumnError(_reserved(name, f"is {fields[name]}"))
    starts = find_episodes(source, episodes)
    if len(starts) < 2:
        raise DataError("there are no rows, and a LeRobot dataset has at least one episode")
    frames = Frames(source, columns, checked, starts, rate)
    frames.find_images()
    frames.find_tasks(task, options.get("instruction"))
    return frames


def _told(source: Source, given: str | None, known: Sequence[str], option: str, what: str) -> str:
    """Return the column that an option names, or the first of the usual ones."""
    found = given or next((name for name in known if name in source.schema), None)
    if found is not None and found in source.schema:
        return found
    if given is not None:
        raise ColumnError(f"{option}={given!r}: {no_column(given, source.schema)}")
    hint: tuple[str | Option, ...] = ()
    if option == "task":
        text = {"instruction": "Pick up the cube."}
        hint = ("; if it is the same for all, give ", Option("options", text))
    raise OptionError(
        Message(
            f'format="lerobot" needs the {what} of each row, and there is no column '
            f"{' or '.join(map(repr, known))}; name it: ",
            Option("options", {option: "my_column"}),
            *hint,
        )
    )


def _name(column: str) -> str:
    return column.replace("/", ".")


def _check_names(columns: Mapping[str, str]) -> None:
    taken: dict[str, str] = {}
    for column, name in columns.items():
        if name in taken:
            raise ColumnError(
                f"columns {taken[name]!r} and {column!r} would both be {name!r} in a LeRobot "
                "dataset, whose names have dots for slashes; rename one of them"
            )
        if name in ("task", *COMPUTED):
            raise ColumnError(_reserved(column, "would be lost"))
        taken[name] = column
    if not columns:
        raise ColumnError("there are no columns other than those that every LeRobot dataset has")


def _reserved(column: str, what: str) -> str:
    return (
        f"column {column!r} {what}: every LeRobot dataset has its own column of that name; rename "
        "it to keep it, or leave it out"
    )


def _check_field(name: str, field: Field) -> None:
    told = f"column {name!r} is {field}, and LeRobot "
    if field.ragged:
        raise ColumnError(f"{told}has only rows of one shape; pad it, or leave it out")
    if field.is_bytes:
        if field.shape:
            raise ColumnError(f"{told}has no lists of strings; leave it out")
        return
    if field.dtype.newbyteorder("=").name not in _NUMBERS:
        dtype = "int64" if field.dtype.kind in "mM" else "float32"
        cast = Option("cast", {name: dtype}, verb=True)
        raise ColumnError(Message(f"{told}has no such type", hint=("cast it, such as ", cast)))
    if len(field.shape) > _MOST_AXES or 0 in field.shape:
        raise ColumnError(f"{told}has no such shape; leave it out")


class Frames(WrappedSource):
    """The frames of episodes.

    ``columns`` has the features by the names of their columns. ``checked`` are columns that must
    say what is computed.
    """

    keeps_rows = True

    def __init__(
        self,
        source: Source,
        columns: Mapping[str, str],
        checked: Sequence[str],
        starts: RowArray,
        rate: Rate,
    ) -> None:
        super().__init__(source.select([*columns, *checked]))
        self._all = source
        self._columns, self._checked = dict(columns), list(checked)
        #: The first frame of each episode, and the number of frames.
        self.starts = starts
        self.rate = rate
        #: The height, width and channels of each column of images.
        self.images: dict[str, tuple[int, int, int]] = {}
        #: The number of each task, and the tasks of each episode.
        self.tasks: dict[str, int] = {}
        self.episode_tasks: list[list[str]] = []
        self._task: str | None = None

    def find_images(self) -> None:
        """Find out which columns are images, and how large: all are as large as the first."""
        fields = self._source.schema
        strings = [name for name in self._columns if fields[name] == Field(BYTES)]
        first = self._source.select(strings).gather(np.zeros(1, np.int64)) if strings else {}
        for name, own in self._columns.items():
            if is_frame(fields[name]):
                height, width, channels = map(int, fields[name].inner)
                self.images[own] = height, width, channels
            elif name in strings:
                shape = image_shape(first[name][0])
                if shape is None:
                    raise ColumnError(
                        f"column {name!r} is bytes, but not PNG or JPEG ("
                        f"{row_name(self._all, 0)}); LeRobot has no other bytes: cast it to "
                        "text, or leave it out"
                    )
                self.images[own] = shape
        if self.images and find_spec("PIL") is None:
            raise MissingPackageError(
                "LeRobot keeps statistics of images, which need Pillow", extra="images"
            )

    def find_tasks(self, column: str | None, instruction: str | None) -> None:
        """Number the tasks in the order in which they come."""
        if column is None:
            self.tasks = {str(instruction): 0}
            self.episode_tasks = [[str(instruction)]] * (len(self.starts) - 1)
            return
        self._task = column
        self._source = self._all.select([*self._columns, *self._checked, column])
        found: list[dict[str, None]] = [{} for _ in self.starts[1:]]
        for first, batch in looked_at(self._all, [column]):
            texts = self._texts(batch[column], first)
            rows = np.arange(first, first + len(texts))
            for episode, text in zip(self._episodes(rows).tolist(), texts, strict=True):
                self.tasks.setdefault(text, len(self.tasks))
                found[episode][text] = None
        self.episode_tasks = list(map(list, found))

    def _texts(self, column: Column, first: int) -> list[str]:
        texts = []
        for number, value in enumerate(column.tolist()):
            try:
                texts.append(value.decode() if isinstance(value, bytes) else str(value))
            except UnicodeDecodeError as e:
                raise DataError(
                    f"{row_name(self._all, first + number)}: the task in {self._task!r} is not "
                    f"UTF-8: {e}",
                    field=self._task,
                ) from None
        return texts

    @cached_property
    def schema(self) -> Schema:
        fields, made = self._source.schema, {}
        for name, own in self._columns.items():
            field = fields[name]
            shape = () if field.shape == (1,) else field.shape
            dtype = field.dtype if field.is_bytes else field.dtype.newbyteorder("=")
            made[own] = Field(BYTES) if own in self.images else Field(dtype, shape)
        return Schema({**made, **COMPUTED})

    @property
    def facts(self) -> SourceFacts:
        return with_facts(
            super().facts, owns_rows=False, can_pad=False, labels={}, descriptions={},
            table_types={}, table_index=None,
        )  # fmt: skip

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        # Frames are in memory together with the images that are made of them.
        room = None if limit is None else limit // (2 if self._makes_images else 1)
        batch = self._source.read(start, stop, room)
        return self._frames(batch, np.arange(start, start + measure(batch)[0]))

    def gather(self, rows: RowArray) -> Batch:
        return self._frames(self._source.gather(rows), rows)

    @property
    def _makes_images(self) -> bool:
        return any(is_frame(self._source.schema[name]) for name in self._columns)

    def _episodes(self, rows: RowArray) -> npt.NDArray[np.int64]:
        return np.searchsorted(self.starts, rows, side="right") - 1

    def _frames(self, batch: Batch, rows: RowArray) -> Batch:
        episodes = self._episodes(rows)
        places = rows - self.starts[episodes]
        times = self.rate.times(places)
        for name in self._checked:
            self._check(name, np.asarray(batch[name]), rows, places, times)
        made: Batch = {}
        for name, own in self._columns.items():
            column = batch[name]
            if own in self.images:
                made[own] = self._images(name, column, rows)
            elif isinstance(column, Ragged):
                made[own] = column
            else:
                field = self.schema[own]
                made[own] = np.asarray(column, field.dtype).reshape(len(rows), *field.inner)
        numbers = np.zeros(len(rows), np.int64)
        if self._task is not None:
            texts = self._texts(batch[self._task], int(rows[0]) if len(rows) else 0)
            numbers[:] = [self.tasks.get(text, -1) for text in texts]
            if (numbers < 0).any():
                raise DataError(f"{self._task!r} has changed since it was first read")
        return {
            **made, TIME: times, FRAME: places, EPISODE: episodes, INDEX: rows.copy(),
            TASK: numbers,
        }  # fmt: skip

    def _check(
        self,
        name: str,
        found: npt.NDArray[Any],
        rows: RowArray,
        places: npt.NDArray[np.int64],
        times: npt.NDArray[np.float32],
    ) -> None:
        """Raise if a column says something else than what is computed."""
        if name != TIME:
            wrong = np.flatnonzero(found != places)
        else:
            wrong = np.flatnonzero(~(np.abs(found - times.astype(np.float64)) <= _allowed(times)))
        if not len(wrong):
            return
        at = int(wrong[0])
        told = f"{self.row_name(int(rows[at]))}: {name} is {found[at].item()!r}, but "
        if name == TIME:
            told += (
                f"frame {places[at]:,} of an episode is at {times[at]:g} s, with "
                f"{self.rate.fps:g} frames per second"
            )
        else:
            told += f"this is frame {places[at]:,} of its episode"
        raise DataError(f"{told}; rename the column to keep it, or leave it out", field=name)

    def _images(self, name: str, column: Column, rows: RowArray) -> Ragged:
        if not isinstance(column, Ragged):
            return as_png(np.asarray(column))
        wanted = self.images[self._columns[name]]
        for number, data in enumerate(column):
            shape = image_shape(data)
            if shape != wanted:
                told = "not a PNG or a JPEG"
                if shape is not None:
                    told = f"an image of {_size(shape)}, but the first has {_size(wanted)}"
                raise DataError(
                    f"{self.row_name(int(rows[number]))}: {name!r} is {told}; in a LeRobot "
                    "dataset, all images of a column have the same size",
                    field=name,
                )
        return column

    def column(self, name: str) -> Column | None:
        return None

    def read_padded(
        self, rows: RowNumbers, pads: Mapping[str, PadSpec], size: int, allocate: Allocate
    ) -> PaddedRows | None:
        return None

    def row_sizes(self, rows: RowArray) -> RowSizes | None:
        sizes = None if self._makes_images else super().row_sizes(rows)
        return None if sizes is None else added(sizes, sum(f.count * 8 for f in COMPUTED.values()))

    def select(self, names: Sequence[str]) -> Source:
        return renamed(self, {name: name for name in names})


def _size(shape: tuple[int, int, int]) -> str:
    height, width, channels = shape
    return f"{width} x {height} pixels and {channels} channels"


def _allowed(times: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Return how far times may be from those of the rate: float32 is coarse for long episodes."""
    allowed: npt.NDArray[np.float64] = np.maximum(_TOLERANCE, np.spacing(times) * 2)
    return allowed
