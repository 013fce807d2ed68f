"""``batch(pad=...)``: turn ragged columns of a batch into dense arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError, DataError, MemoryLimitError, OptionError
from recmap.machine.memory import empty, empty_bytes
from recmap.model.arguments import check_choice, did_you_mean
from recmap.model.batch import PaddedColumn, PadSpec, Positions, cut
from recmap.model.casting import first_lost
from recmap.model.field import Field
from recmap.model.ragged import Column, Ragged
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source
from recmap.pipeline.transforms.base import Block, Transform

# Items of a row. A larger number is a mistake, and would overflow the size of an array.
_MOST_LENGTH = 2**31

PadLength: TypeAlias = int | Literal["longest"]
PadLengths: TypeAlias = PadLength | tuple[PadLength, ...]
Side: TypeAlias = Literal["right", "left"]
Cut: TypeAlias = Literal["right", "left", "error"]


@dataclass(frozen=True)
class Pad:
    """How rows of different lengths become one array.

    ``length`` is a number of items, or ``"longest"`` for the longest row of the batch; a
    tuple gives one for each ragged axis. ``side`` is where short rows are filled up with
    ``fill``. ``cut`` is where long rows lose items; ``"error"`` refuses such rows.
    ``multiple`` rounds the longest row up, for hardware that prefers multiples of 8, or for
    fewer different shapes.

    >>> Pad(128, fill=-1, side="left")
    Pad(length=128, fill=-1, side='left', cut='right', multiple=None)
    """

    length: PadLengths = "longest"
    fill: Any = 0
    side: Side = "right"
    cut: Cut = "right"
    multiple: int | None = None

    def __post_init__(self) -> None:
        lengths = self.length if isinstance(self.length, tuple) else (self.length,)
        for length in lengths:
            if not _is_count(length) and not (isinstance(length, str) and length == "longest"):
                raise OptionError(
                    f"cannot pad to {length!r}: a length is a number of 1 or more, or 'longest'"
                )
        check_choice("side", self.side, get_args(Side))
        check_choice("cut", self.cut, get_args(Cut))
        if self.multiple is not None and not _is_count(self.multiple):
            raise OptionError(f"multiple={self.multiple!r}: it is a number of 1 or more")
        if self.multiple is not None and "longest" not in lengths:
            raise OptionError(f"multiple={self.multiple} rounds 'longest' up; length is a number")

    def lengths(self, axes: int, name: str) -> tuple[PadLength, ...]:
        """Return a length for each of the ragged axes of a column."""
        if not isinstance(self.length, tuple):
            return (self.length,) * axes
        if len(self.length) != axes:
            raise OptionError(
                f"column {name!r}: {len(self.length)} lengths to pad to, {self.length}, "
                f"but ragged axes: {axes}"
            )
        return self.length


PadLike: TypeAlias = Pad | PadLengths | Mapping[str, Pad | PadLengths]


class Padding:
    """Pads the columns that ``pad=`` names, to the lengths it gives.

    ``pad`` is a length, ``"longest"`` or a ``Pad`` for every ragged column of numbers, or a
    mapping from some columns to theirs. Other columns are not changed; byte strings are never
    padded. ``lengths=True`` adds a column ``tokens_length`` (how many items of each row were
    kept, along its first axis). ``mask=True`` adds a column ``tokens_mask`` (which items are
    not filler).

    >>> padding = Padding({"tokens": 4}, lengths=True)
    >>> padding.apply(
    ...     {"tokens": Ragged.from_rows([[1, 2], [3]])}, Schema({"tokens": "int64[*]"})
    ... )
    {'tokens': array([[1, 2, 0, 0],
           [3, 0, 0, 0]]), 'tokens_length': array([2, 1])}
    """

    def __init__(self, pad: PadLike, *, lengths: bool = False, mask: bool = False) -> None:
        self._all = None if isinstance(pad, Mapping) else _as_pad(pad)
        self._named = (
            {name: _as_pad(given) for name, given in pad.items()}
            if isinstance(pad, Mapping)
            else {}
        )
        self._lengths = lengths
        self._mask = mask
        self._known: tuple[Schema, dict[str, Pad], dict[str, PadSpec]] | None = None

    def schema(self, schema: Schema) -> Schema:
        """Return the fields of the padded rows; refuse columns that cannot be padded.

        An axis padded to ``"longest"`` stays ragged in the schema, because its length differs
        between batches, though each batch holds one dense array. So do the axes before it: a
        ragged axis cannot follow a fixed one in a schema.
        """
        pads = self._pads(schema)
        fields: dict[str, Field] = {}
        for name, field in schema.items():
            if name not in pads:
                fields[name] = field
                continue
            axes = _axes(pads[name].lengths(field.ragged, name))
            fields[name] = Field(field.dtype, (*axes, *field.inner))
            if self._lengths:
                fields[f"{name}_length"] = Field(np.int64)
            if self._mask:
                fields[f"{name}_mask"] = Field(np.bool_, axes)
        return Schema(fields)

    def apply(self, batch: Batch, schema: Schema) -> Batch:
        """Return the batch with padded columns; ``schema`` describes the ragged rows."""
        pads = self._pads(schema)
        padded: Batch = {}
        for name, column in batch.items():
            if name not in pads:
                padded[name] = column
                continue
            pad, axes = pads[name], schema[name].ragged
            ragged = as_ragged(column, axes, name)
            widths = _widths(ragged, pad.lengths(axes, name), pad, name)
            padded[name] = self._dense(ragged, widths, pad, pad.fill)
            if self._lengths:
                padded[f"{name}_length"] = np.minimum(ragged.lengths, widths[0])
            if self._mask:
                padded[f"{name}_mask"] = self._dense(_ones(ragged), widths, pad, False)
        return padded

    def has_flat(self, schema: Schema) -> bool:
        """Return whether some columns can be padded while they are read."""
        return any(_is_flat(schema[name]) for name in self._pads(schema))

    def read(
        self, rows: Source, positions: Positions, size: int, max_bytes: int, schema: Schema
    ) -> list[Batch]:
        """Read rows in batches of ``size``, padded while they are read. The batches share memory.

        Return no batches if the source cannot do that. Raise MemoryLimitError if several
        batches together take more than ``max_bytes``.
        """
        pads, native = self._prepared(schema)
        count = _limit(max_bytes if len(positions) > size else sys.maxsize)

        def allocate(bytes_: int) -> npt.NDArray[np.uint8]:
            count(bytes_)
            return empty_bytes(bytes_)

        read = rows.read_padded(positions, native, size, allocate)
        if read is None:
            return []
        columns: dict[str, Sequence[Column]] = {}
        for name in schema:
            if name in read.padded:
                made = self._parts(name, pads[name], read.padded[name], size)
                added = [parts for part_of, parts in made.items() if part_of != name]
                count(sum(part.nbytes for parts in added for part in parts))
                columns |= made
                continue
            ends = range(size, size + max(1, len(positions)), size)
            parts = cut(read.others[name], ends)
            if name in pads:  # lists of lists
                done = [self.apply({name: part}, schema) for part in parts]
                count(sum(part.nbytes for each in done for part in each.values()))
                columns |= {made: [each[made] for each in done] for made in done[0]}
            else:
                columns[name] = parts
        each_batch = zip(*columns.values(), strict=True)
        return [dict(zip(columns, parts, strict=True)) for parts in each_batch]

    def _parts(
        self, name: str, pad: Pad, column: PaddedColumn, size: int
    ) -> dict[str, Sequence[Column]]:
        """Return a padded column and those added to it, each as the parts for the batches."""
        parts: dict[str, Sequence[Column]] = {name: column.arrays}
        if pad.cut != "error" and not self._lengths and not self._mask:
            return parts
        widths = [array.shape[1] for array in column.arrays]
        starts = range(0, len(column.lengths), size)
        sized = [(column.lengths[at : at + size], w) for at, w in zip(starts, widths, strict=True)]
        if pad.cut == "error":
            for lengths, width in sized:
                _check_lengths(lengths, width, name, "row")
        if self._lengths:
            parts[f"{name}_length"] = [np.minimum(lengths, width) for lengths, width in sized]
        if self._mask:
            step = 1 if pad.side == "right" else -1
            parts[f"{name}_mask"] = [np.arange(w)[::step] < lens[:, None] for lens, w in sized]
        return parts

    def _native(self, name: str, pad: Pad, field: Field) -> PadSpec:
        (length,) = pad.lengths(1, name)
        item = np.full(field.inner, pad.fill, field.dtype).tobytes()
        width = None if length == "longest" else length
        return PadSpec(width, pad.multiple or 1, item, pad.side == "left", pad.cut == "left")

    def _dense(
        self, column: Ragged, widths: tuple[int, ...], pad: Pad, fill: Any
    ) -> npt.NDArray[Any]:
        values = column.flat
        if isinstance(values, Ragged):
            values = self._dense(values, widths[1:], pad, fill)
            column = Ragged(values, column.offsets - column.offsets[0])
        cut: Side = "left" if pad.cut == "left" else "right"
        out = empty((len(column), widths[0], *values.shape[1:]), values.dtype)
        return column.pad(widths[0], fill, side=pad.side, cut=cut, out=out)

    def _pads(self, schema: Schema) -> dict[str, Pad]:
        return self._prepared(schema)[0]

    def _prepared(self, schema: Schema) -> tuple[dict[str, Pad], dict[str, PadSpec]]:
        """Return how to pad the columns to pad, and those that are padded while they are read."""
        # All batches have the same schema.
        known = self._known
        if known is None or known[0] is not schema:
            pads = self._checked(schema)
            flat = {n: pad for n, pad in pads.items() if _is_flat(schema[n])}
            native = {n: self._native(n, pad, schema[n]) for n, pad in flat.items()}
            self._known = known = schema, pads, native
        return known[1:]

    def _checked(self, schema: Schema) -> dict[str, Pad]:
        if self._all is not None:
            pads = {n: self._all for n, f in schema.items() if f.ragged and not f.is_bytes}
        else:
            pads = self._named
        for name, pad in pads.items():
            _check(name, pad, schema)
        added = [f"{n}_length" for n in pads if self._lengths]
        added += [f"{n}_mask" for n in pads if self._mask]
        if taken := [name for name in added if name in schema]:
            raise OptionError(
                f"padding adds a column {taken[0]!r}, but there is one already; rename it first"
            )
        return pads


@dataclass(frozen=True)
class PadBatches(Transform):
    """Makes ragged columns of a batch dense."""

    padding: Padding
    before: Schema | None = None
    name = "pad"

    def prepared(self, schema: Schema, sample: Block) -> tuple[Transform, Schema]:
        return replace(self, before=schema), self.padding.schema(schema)

    def apply(self, block: Block) -> Block:
        assert self.before is not None
        return replace(block, batch=self.padding.apply(block.batch, self.before))

    @property
    def pads_while_read(self) -> bool:
        """Whether some columns can be padded while they are read."""
        return self.before is not None and self.padding.has_flat(self.before)


def padding_while_read(
    rows: Source, transforms: tuple[Transform, ...]
) -> tuple[Padding, Schema, tuple[Transform, ...]] | None:
    """Return what reads several batches of ragged rows at once; None if nothing does.

    With the padding, which may be of no column, come the schema of the rows for ``Padding.read``
    and the transforms left to apply to the batches.
    """
    if not rows.facts.can_pad:
        return None
    first = transforms[0] if transforms else None
    if isinstance(first, PadBatches) and first.pads_while_read:
        assert first.before is not None
        return first.padding, first.before, transforms[1:]
    if not has_ragged(rows.schema):
        return None
    return _NO_PADDING, rows.schema, transforms


def has_ragged(schema: Schema) -> bool:
    """Return whether rows differ in size."""
    return any(field.row_bytes is None for field in schema.values())


_NO_PADDING = Padding({})


def _limit(max_bytes: int) -> Callable[[int], None]:
    """Return a function that counts bytes, and raises once they are more than ``max_bytes``."""
    left = max_bytes

    def count(size: int) -> None:
        nonlocal left
        left -= size
        if left < 0:
            raise MemoryLimitError("these batches are too large to be read together")

    return count


def fitting_fill(fill: Any, dtype: np.dtype[Any], name: str) -> None:
    """Refuse a fill value that a column of this dtype cannot hold."""
    given = np.asarray(fill)
    kinds = {"c": "biufc", "m": "ium", "M": "iuM"}.get(dtype.kind, "biuf")
    fits = given.ndim == 0 and given.dtype.kind in kinds
    if fits and dtype.kind not in "mM":
        fits = first_lost(given, dtype, rounds=True) is None
    if not fits:
        raise OptionError(f"column {name!r}: {dtype} cannot hold the fill value {fill!r}")


def _check(name: str, pad: Pad, schema: Schema) -> None:
    if name not in schema:
        known = f"there are: {', '.join(schema)}{did_you_mean(name, schema)}"
        raise OptionError(f"cannot pad {name!r}: no such column; {known}")
    field = schema[name]
    if field.is_bytes:
        raise OptionError(
            f"cannot pad {name!r}: it is {field}, and byte strings have no filler; leave it out "
            "of pad=, or map it to numbers first"
        )
    if not field.ragged:
        raise OptionError(f"cannot pad {name!r}: its rows, {field}, already have the same length")
    pad.lengths(field.ragged, name)
    fitting_fill(pad.fill, field.dtype, name)


def _as_pad(given: Pad | PadLengths) -> Pad:
    return given if isinstance(given, Pad) else Pad(given)


def _is_count(value: Any) -> bool:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return whole and 1 <= int(value) <= _MOST_LENGTH


def _axes(lengths: tuple[PadLength, ...]) -> tuple[int | None, ...]:
    ragged = max((i + 1 for i, length in enumerate(lengths) if length == "longest"), default=0)
    fixed = [length for length in lengths[ragged:] if length != "longest"]
    return (None,) * ragged + tuple(fixed)


def as_ragged(column: Column, axes: int, name: str) -> Ragged:
    """Return the column with as many ragged axes as its field has.

    A user's function may have made some of them regular.
    """
    if isinstance(column, np.ndarray):
        if column.ndim <= axes:
            raise ColumnError(f"column {name!r}: an array of {column.ndim} axes is not ragged rows")
        rows, width = column.shape[:2]
        values: Column = column.reshape(rows * width, *column.shape[2:])
        column = Ragged(values, np.arange(rows + 1) * width)
    if axes == 1:
        return column
    return Ragged(as_ragged(column.flat, axes - 1, name), column.offsets - column.offsets[0])


def _ones(column: Ragged) -> Ragged:
    """Return rows of the same lengths, with True for every item."""
    values = column.flat
    items = _ones(values) if isinstance(values, Ragged) else np.ones(len(values), np.bool_)
    return Ragged(items, column.offsets - column.offsets[0])


def _is_flat(field: Field) -> bool:
    """Return whether rows are lists of numbers, not lists of lists."""
    return field.ragged == 1 and not field.is_bytes


def _check_lengths(lengths: npt.NDArray[np.int64], width: int, name: str, place: str) -> None:
    if int(lengths.max(initial=0)) > width:
        row = int(np.argmax(lengths > width))
        raise DataError(
            f"column {name!r}: {place} {row:,} of the batch has {int(lengths[row]):,} "
            f"items, to be padded to {width:,} (cut='right' or 'left' shortens such rows)",
            field=name,
        )


def _widths(
    column: Ragged, lengths: tuple[PadLength, ...], pad: Pad, name: str, place: str = "row"
) -> tuple[int, ...]:
    longest = int(column.lengths.max(initial=0))
    if lengths[0] == "longest":
        step = pad.multiple or 1
        width = -(-longest // step) * step
    else:
        width = lengths[0]
        if pad.cut == "error":
            _check_lengths(column.lengths, width, name, place)
    values = column.flat
    if not isinstance(values, Ragged):
        return (width,)
    return width, *_widths(values, lengths[1:], pad, name, "list")
