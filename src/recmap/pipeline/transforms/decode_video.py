"""``decode_video``: turn a column of videos into frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError, OptionError
from recmap.formats.video import WantedFrames, decode_frames, each_file, frame_count, inside
from recmap.local.location import Location
from recmap.model.arguments import as_list, as_whole, check_choice
from recmap.model.field import Field
from recmap.model.ragged import Column, Ragged, offsets_of
from recmap.model.schema import Schema
from recmap.pipeline.transforms.base import Block, Transform
from recmap.store.paths import as_location

BadVideos: TypeAlias = Literal["raise", "skip"]
Offsets: TypeAlias = npt.NDArray[np.int64]

_MOST_SIDE = 1 << 14
# Values in a row. A few numbers may ask for any number of frames.
_MOST_VALUES = 1 << 30


@dataclass(frozen=True)
class DecodeVideo(Transform):
    """Decodes frames of a column of videos: files, or paths in ``folder``.

    ``by`` is the column with the numbers or times of the frames; without one, all are decoded.
    """

    column: str
    by: str | None
    times: bool
    size: tuple[int, int]
    folder: Location | None
    errors: BadVideos
    name = "decode_video"

    @classmethod
    def checked(
        cls, column: Any, frame: Any, timestamp: Any, size: Any, folder: Any, errors: Any
    ) -> DecodeVideo:
        """Check the user's arguments and return the transform."""
        if frame is not None and timestamp is not None:
            raise OptionError("decode_video: give frame= or timestamp=, not both")
        if isinstance(size, int | np.integer) and not isinstance(size, bool):
            size = (int(size), int(size))
        sides = [as_whole("size", each, 1, _MOST_SIDE) for each in as_list("size", size, "224")]
        if len(sides) != 2:
            raise OptionError(f"size={size!r}: give one number, or (height, width)")
        return cls(
            column,
            timestamp if frame is None else frame,
            timestamp is not None,
            (sides[0], sides[1]),
            None if folder is None else as_location(folder, "folder").absolute(),
            check_choice("errors", errors, get_args(BadVideos)),
        )

    @property
    def drops(self) -> bool:
        return self.errors == "skip"

    def leaves(self, name: str) -> bool:
        return name != self.column and not self.drops

    def output(self, schema: Schema) -> Schema:
        field = schema[self.column]
        if field.has_nulls or field not in (Field("bytes"), Field("text")):
            hint = f"; leave out rows without video: ds.drop_null({self.column!r})"
            raise OptionError(
                f"decode_video: {self.column!r} is {field}, not bytes{hint * field.nullable}"
            )
        shape = self._places(schema) if self.by else (None,)
        return Schema({**schema, self.column: Field("uint8", (*shape, *self.size, 3))})

    def _places(self, schema: Schema) -> tuple[int | None, ...]:
        """Return the shape of the frames of a row: none, a number of them, or ragged."""
        assert self.by is not None
        field, option = schema[self.by], "timestamp" if self.times else "frame"
        wanted = "f" if self.times else "iu"
        if field.is_bytes or field.dtype.kind not in wanted or len(field.shape) > 1:
            kind = "floats, the times in seconds" if self.times else "integers"
            raise OptionError(
                f"decode_video({option}={self.by!r}): that column is {field}; it must have one or "
                f"several {kind}, for each row"
            )
        if field.has_nulls:
            raise OptionError(f"decode_video({option}={self.by!r}): that column has nulls")
        return field.shape

    def apply(self, block: Block) -> Block:
        strings = block.batch[self.column]
        assert isinstance(strings, Ragged)
        reasons: dict[int, str] = {}
        files: list[Location | bytes] = [b""] * len(strings)
        for row in range(len(strings)):
            try:
                files[row] = self._file(bytes(strings[row]))
            except DataError as e:
                reasons[row] = str(e)
        which, ends = self._wanted(block, files, reasons)
        out = np.empty((len(which), *self.size, 3), np.uint8)
        wanted = list[WantedFrames]()
        for file, rows in each_file(files):
            good = [row for row in rows if row not in reasons and ends[row] < ends[row + 1]]
            if good:
                places = np.concatenate([np.arange(ends[r], ends[r + 1]) for r in good])
                wanted.append(WantedFrames(file, which[places], places))
        for place, reason in decode_frames(wanted, out).items():
            row = int(np.searchsorted(ends, place, side="right")) - 1
            reasons.setdefault(row, reason)
        if reasons and not self.drops:
            row = min(reasons)
            raise DataError(
                f"{block.origin(row)}: {self.column!r}: {reasons[row]}",
                field=self.column,
            )
        frames = self._column(block, out, ends)
        decoded = replace(block, batch={**block.batch, self.column: frames})
        good_rows = np.ones(len(strings), bool)
        good_rows[list(reasons)] = False
        return decoded.where(good_rows)

    def _file(self, value: bytes) -> Location | bytes:
        if self.folder is None:
            return value
        try:
            return inside(self.folder, value.decode())
        except UnicodeDecodeError:
            raise DataError("it is not text, but folder= says that it has paths") from None

    def _wanted(
        self, block: Block, files: Sequence[Location | bytes], reasons: dict[int, str]
    ) -> tuple[npt.NDArray[Any], Offsets]:
        """Return the frames to decode, of all rows end to end, and where those of each row end."""
        most = _MOST_VALUES // (3 * self.size[0] * self.size[1])
        if self.by is None:
            counts = [0 if row in reasons else _count(file, row, reasons)
                      for row, file in enumerate(files)]  # fmt: skip
            numbers = [np.arange(min(count, most + 1)) for count in counts]
        else:
            given = block.batch[self.by]
            numbers = [np.atleast_1d(given[row])[: most + 1] for row in range(len(given))]
        for row, each in enumerate(numbers):
            if len(each) > most:
                reasons[row] = f"more than {most:,} frames of this size"
            if row in reasons and self.by is None:
                numbers[row] = each[:0]
        dtype = np.float64 if self.times else np.int64
        joined = np.concatenate([np.empty(0, dtype), *numbers]).astype(dtype)
        return joined, offsets_of([len(each) for each in numbers])

    def _column(self, block: Block, out: npt.NDArray[np.uint8], ends: Offsets) -> Column:
        given = None if self.by is None else block.batch[self.by]
        if given is None or isinstance(given, Ragged):
            return Ragged(out, ends)
        return out.reshape(*given.shape, *self.size, 3)


def _count(file: Location | bytes, row: int, reasons: dict[int, str]) -> int:
    try:
        return frame_count(file)
    except DataError as e:
        reasons[row] = f"{'it' if isinstance(file, bytes) else file} {e}"
        return 0
