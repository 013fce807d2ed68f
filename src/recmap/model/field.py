"""Field: the type of one column."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import FieldTextError, OptionError
from recmap.model.arguments import as_dtype, as_whole, is_iterable
from recmap.model.casting import exact_array, first_lost

# The dtypes of byte strings and of text: NumPy's string dtypes without a length.
BYTES = np.dtype("S")
TEXT = np.dtype("U")

_NAMES: dict[np.dtype[Any], str] = {BYTES: "bytes", TEXT: "text"}

Shape: TypeAlias = tuple[int | None, ...]
FieldLike: TypeAlias = "Field | str"

_TEXT = re.compile(
    r"""\s*(?P<dtype>[<>=|]?[A-Za-z_]\w*(\[\s*\d*\s*[A-Za-z]+\s*\])?)
        \s*(\[(?P<shape>[\d\s,*?]*)\])?\s*(?P<nullable>\?)?
        \s*(=\s*(?P<fill>\S.*?))?\s*""",
    re.VERBOSE,
)


@dataclass(frozen=True, eq=False)
class Field:
    """The type of one column: what a row holds.

    ``shape`` is the shape of one row; ``None`` marks a ragged axis, with a length that
    differs from row to row. ``fill`` is the value for rows that have none in the file.
    Without it, a missing value raises an error (or is an empty row, if the first axis is ragged). A
    missing ragged row is always empty; there, ``fill`` is the value for null items of tables.

    ``nullable`` means that rows may be null, ``null_items`` that the items of ragged rows may be,
    at any depth. See ``recmap.model.nulls`` for how columns hold nulls.

    >>> Field.parse("float32[10]")
    Field('float32[10]')
    >>> Field.parse("int64[*, 4]").shape
    (None, 4)
    >>> Field.parse("int64 = -1").fill
    -1
    >>> Field.parse("text = n/a").fill
    'n/a'
    >>> Field.parse("int64[*?]?").nullable, Field.parse("int64[*?]").null_items
    (True, True)
    """

    dtype: np.dtype[Any]
    shape: Shape = ()
    fill: Any = None
    nullable: bool = False
    null_items: bool = False

    def __init__(
        self,
        dtype: npt.DTypeLike,
        shape: Shape | int = (),
        fill: Any = None,
        nullable: bool = False,
        null_items: bool = False,
    ) -> None:
        object.__setattr__(self, "dtype", _dtype(dtype))
        object.__setattr__(self, "shape", _shape(shape))
        object.__setattr__(self, "fill", fill)
        object.__setattr__(self, "nullable", nullable)
        object.__setattr__(self, "null_items", null_items)
        self._check()

    def _check(self) -> None:
        ragged = self.ragged
        if ragged and None in self.shape[ragged:]:
            raise FieldTextError(f"field {self}: ragged axes (*) come before all others")
        if None in self.shape and not ragged:
            raise FieldTextError(f"field {self}: ragged axes (*) come before all others")
        if ragged and 0 in self.shape:
            raise FieldTextError(f"field {self}: an axis of 0 below a ragged one holds nothing")
        if self.null_items and not ragged:
            raise FieldTextError(f"field {self}: only the items of ragged axes (*) can be null")
        if self.nullable and not ragged and 0 in self.shape:
            raise FieldTextError(f"field {self}: a row of no values cannot be null; use an axis *")
        if self.fill is not None:
            if self.has_nulls:
                raise FieldTextError(f"field {self}: with a fill value, there are no nulls (?)")
            self.fill_row()

    @classmethod
    def parse(cls, text: Any) -> Field:
        """Parse a field: ``float32[10]``, ``int64[*]``, ``text``, ``int64?`` or ``int64 = 0``."""
        match = _TEXT.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise FieldTextError(
                f"cannot read the field {text!r}: write it like 'float32[10]', 'int64[*]', "
                "'float32[*,4]', 'bytes', 'text', 'int64?' or 'int64 = 0'"
            )
        shape, null_items = [], False
        for part in (match["shape"] or "").split(","):
            axis, null = part.strip().removesuffix("?").rstrip(), part.strip().endswith("?")
            null_items = null_items or null
            if null and axis != "*":
                raise FieldTextError(
                    f"cannot read the shape of the field {text!r}: only the items of ragged axes "
                    "(*) can be null, as in 'int64[*?]'"
                )
            if axis and axis != "*" and not axis.isdigit():
                raise FieldTextError(f"cannot read the shape of the field {text!r}")
            if axis:
                shape.append(None if axis == "*" else int(axis))
        dtype = _dtype(match["dtype"])
        fill = _fill(dtype, match["fill"], text)
        return cls(dtype, tuple(shape), fill, match["nullable"] is not None, null_items)

    @property
    def has_nulls(self) -> bool:
        """Whether rows or items may be null."""
        return self.nullable or self.null_items

    def without_nulls(self) -> Field:
        """Return the same field, of values that are not null."""
        return replace(self, nullable=False, null_items=False) if self.has_nulls else self

    def item(self) -> Field:
        """Return the field of the items of a row."""
        null_items = self.null_items and self.ragged > 1
        return Field(self.dtype, self.shape[1:], None, self.null_items, null_items)

    @property
    def is_bytes(self) -> bool:
        """Whether the values are byte strings. Text counts: it is stored as UTF-8."""
        return self.dtype.kind in "SU"

    @property
    def is_text(self) -> bool:
        """Whether the values are text."""
        return self.dtype.kind == "U"

    def as_bytes(self) -> Field:
        """Return the field of the bytes that text is stored as; any other field is the same."""
        return replace(self, dtype=BYTES, fill=None) if self.is_text else self

    @property
    def ragged(self) -> int:
        """The number of ragged axes, which always come first."""
        count = 0
        while count < len(self.shape) and self.shape[count] is None:
            count += 1
        return count

    @property
    def inner(self) -> tuple[int, ...]:
        """The axes after the ragged ones."""
        return tuple(axis for axis in self.shape if axis is not None)

    @property
    def count(self) -> int:
        """The number of values in one item of the ragged axes, or in a row if there are none."""
        return math.prod(self.inner)

    @property
    def row_bytes(self) -> int | None:
        """The size of one row in memory, in bytes; None if rows differ in size."""
        return None if self.ragged or self.is_bytes else self.count * self.dtype.itemsize

    def fill_row(self) -> npt.NDArray[Any] | bytes:
        """Return the row to use in place of a missing one; of text, its UTF-8."""
        if self.is_text:
            try:
                return str.encode(self.fill)
            except (TypeError, UnicodeEncodeError) as e:
                raise FieldTextError(
                    f"field {self}: the fill value of text must be text: {e}"
                ) from e
        if self.is_bytes:
            if not isinstance(self.fill, bytes):
                raise FieldTextError(f"field {self}: the fill value of bytes must be bytes")
            return self.fill
        if self.dtype.type is np.void:
            return np.full(self.inner, self._fill_void(), self.dtype)
        try:
            given = np.broadcast_to(exact_array(self.fill), self.inner)
            lost = first_lost(given, self.dtype, rounds=True)
            if lost is not None and self.dtype.kind not in "mM":
                raise ValueError(f"{self.dtype} cannot hold {lost[1]!r}")
            return given.astype(self.dtype)
        except (TypeError, ValueError) as e:
            raise FieldTextError(f"field {self}: {self.fill!r} cannot fill a row: {e}") from e

    def _fill_void(self) -> np.void:
        """Return the fill value of bytes of a fixed size: 0 for zeros, or as many bytes."""
        content = bytes(self.dtype.itemsize) if self.fill == 0 else self.fill
        if not isinstance(content, bytes) or len(content) != self.dtype.itemsize:
            raise FieldTextError(
                f"field {self}: the fill value must be 0 or {self.dtype.itemsize:,} bytes"
            )
        return np.void(content)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Field):
            return NotImplemented
        if (self.dtype, self.shape) != (other.dtype, other.shape):
            return False
        if (self.nullable, self.null_items) != (other.nullable, other.null_items):
            return False
        if self.fill is None or other.fill is None:
            return self.fill is other.fill
        # Compare the fill rows: a fill may be an array, and NaN is not equal to itself.
        return _plain(self.fill_row()) == _plain(other.fill_row())

    def __hash__(self) -> int:
        return hash((self.dtype, self.shape))

    def __str__(self) -> str:
        name = _NAMES.get(self.dtype) or _dtype_text(self.dtype)
        axes = ["*" if axis is None else str(axis) for axis in self.shape]
        if self.null_items:
            axes[max(self.ragged, 1) - 1] += "?"
        text = f"{name}[{','.join(axes)}]" if self.shape else name
        text += "?" if self.nullable else ""
        if self.fill is None:
            return text
        fill = self.fill
        if isinstance(fill, bytes):
            fill = fill.decode("utf-8", "backslashreplace")
        return f"{text} = {fill}"

    def __repr__(self) -> str:
        return f"Field({str(self)!r})"


def _plain(row: npt.NDArray[Any] | bytes) -> bytes:
    return row if isinstance(row, bytes) else row.tobytes()


def as_field(field: FieldLike) -> Field:
    """Return a field unchanged, or parse it from text."""
    if not isinstance(field, Field | str):
        raise FieldTextError(f"a field is text such as 'float32[10]', not {field!r}")
    return field if isinstance(field, Field) else Field.parse(field)


def _dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    for strings, name in _NAMES.items():
        if isinstance(dtype, str) and dtype == name:
            return strings
    try:
        made = as_dtype("dtype", dtype)
    except OptionError as e:
        raise FieldTextError(str(e).removeprefix("dtype=")) from None
    if made.kind in "SU" and made.itemsize == 0:
        return BYTES if made.kind == "S" else TEXT
    if made.hasobject or made.names is not None or made.kind in "SU":
        raise FieldTextError(
            f"dtype {made} is not one a field can have; use bytes or text for strings"
        )
    return made.newbyteorder("=") if made.byteorder == "=" else made


def _shape(shape: Any) -> Shape:
    axes = (shape,) if isinstance(shape, int | np.integer) else shape
    if not is_iterable(axes) or isinstance(axes, str | bytes):
        raise FieldTextError(f"shape={shape!r}: give the axes of a row, such as (10,) or (None, 4)")
    try:
        return tuple(None if axis is None else as_whole("axis", axis) for axis in axes)
    except OptionError as e:
        raise FieldTextError(f"shape={shape!r}: {e}, or None for a ragged axis") from None


def _dtype_text(dtype: np.dtype[Any]) -> str:
    return str(dtype) if dtype.isnative else dtype.str


def _fill(dtype: np.dtype[Any], text: str | None, field: str) -> Any:
    if text is None:
        return None
    if dtype == TEXT:
        return text
    if dtype == BYTES:
        return text.encode()
    if dtype.type is np.void:
        return 0 if text == "0" else text.encode()
    try:
        if dtype.kind in "iu":
            return int(text, 0)
        if dtype.kind == "b":
            return {"0": False, "1": True, "false": False, "true": True}[text.lower()]
        if dtype.kind == "c":
            return complex(text)
        if dtype.kind in "mM":
            return dtype.type(text)
        return float(text)
    except (KeyError, ValueError):
        raise FieldTextError(f"cannot read the fill value of the field {field!r}") from None
