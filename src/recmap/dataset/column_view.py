"""ColumnView: a column of a dataset that is not stored as an array."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from recmap.dataset.glimpse import first_values
from recmap.dataset.on_demand_array import OnDemandArray, index_array, reduce_blocks
from recmap.dataset.rows import RowIteration, get_row, get_rows, read_blocks
from recmap.errors import OptionError, OptionTypeError, RecmapError, RowNotFoundError
from recmap.machine.mapped import Guard
from recmap.model.arguments import as_dtype, as_row
from recmap.model.ragged import Column, Ragged
from recmap.model.source import Source

# Attributes of ndarray that load the column first. In-place methods are missing, because they
# would change a copy.
_OF_ARRAY = frozenset(
    [
        *("T", "argpartition", "argsort", "astype", "byteswap", "choose", "clip", "compress"),
        *("conj", "conjugate", "copy", "cumprod", "cumsum", "diagonal", "dot", "flat", "flatten"),
        *("imag", "item", "mT", "nonzero", "ravel", "real", "repeat", "reshape", "round"),
        *("searchsorted", "squeeze", "swapaxes", "take", "tobytes", "tofile", "tolist", "trace"),
        *("transpose", "view"),
    ]
)
_EQUALITY = {np.equal: operator.eq, np.not_equal: operator.ne}


class ColumnView(NDArrayOperatorsMixin):
    """A column of a dataset that works like an array and reads what you index.

    Any NumPy index works, and reads only the rows it needs: ``col[3, 2]``, ``col[5:10, 0]``,
    ``col[mask]``, ``col[[3, 2], [0, 1]]``, ``col[::-1]``. ``sum``, ``mean``, ``max`` and the
    other reductions read the column block by block, so memory stays bounded. Floating-point
    sums are at least as exact as NumPy's, and may differ from them in the last digits. With
    ``where=`` or ``initial=``, reductions load the whole column.

    Arithmetic, comparisons, ``np.asarray`` and other NumPy functions load the whole column.
    Columns are read-only.

    Index the rows of ragged and byte string columns by number, slice, list or mask.

    >>> import recmap as rm
    >>> for name, rows in ("a.npy", 3), ("b.npy", 2):
    ...     np.save(name, np.arange(2 * rows).reshape(rows, 2))
    >>> column = rm.open(["a.npy", "b.npy"])["data"]
    >>> column[1:4, 0]
    array([2, 4, 0])
    >>> column.sum(axis=0)
    array([ 8, 13])
    """

    __slots__ = ("_source", "field", "name")

    def __init__(self, source: Source, name: str) -> None:
        self._source = source
        self.name = name
        self.field = source.schema[name]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values."""
        return self.field.dtype

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The shape, rows first; None marks a ragged axis."""
        return (len(self), *self.field.shape)

    @property
    def ndim(self) -> int:
        """The number of axes, including the rows."""
        return 1 + len(self.field.shape)

    @property
    def itemsize(self) -> int:
        """The size of one value in bytes."""
        return self.dtype.itemsize

    @property
    def size(self) -> int:
        """The number of values."""
        return math.prod(self._fixed("size"))

    @property
    def nbytes(self) -> int:
        """The size of the loaded column in bytes."""
        return self.size * self.itemsize

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, key: Any) -> Any:
        number = as_row(key)
        if number is not None:
            return get_row(self._source, number)[self.name]
        if isinstance(key, slice) and key.step in (None, 1):
            return get_rows(self._source, key)[self.name]
        if not self._is_array:
            return self._listed(key)
        source, name = self._source, self.name
        reader = OnDemandArray(
            self._fixed("indexing"),
            self.dtype,
            lambda start, stop: _array(source.read(start, stop)[name]),
            lambda rows: _array(source.gather(rows)[name]),
        )
        try:
            return index_array(reader, key)
        except RowNotFoundError as e:
            raise RowNotFoundError(f"column {name!r}: {e}") from None

    def _listed(self, key: Any) -> Any:
        """Index ragged rows or byte strings: by row, then within one row."""
        if isinstance(key, tuple) and len(key) == 1:
            return self[key[0]]
        if key is Ellipsis or (isinstance(key, tuple) and not key):
            return self[:]
        number = as_row(key[0]) if isinstance(key, tuple) else None
        if number is not None:
            row = self[number]
            if isinstance(row, np.ndarray):
                try:
                    return row[key[1:]]
                except (IndexError, TypeError, ValueError) as e:
                    raise RowNotFoundError(f"column {self.name!r}: row {number}: {e}") from None
            if isinstance(row, Ragged) and len(key) == 2:
                return row[key[1]]
        if isinstance(key, tuple | str) or key is None or isinstance(key, bool | np.bool_):
            raise RowNotFoundError(
                f"column {self.name!r} is {self.field}: index its rows by number, slice, list or "
                f"mask, and then a row: ds[{self.name!r}][7][:3]"
            )
        try:
            return get_rows(self._source, key)[self.name]
        except OptionError as e:
            raise RowNotFoundError(f"column {self.name!r}: {e}") from None

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise OptionError(
            f"column {self.name!r} is read-only; change a copy: array = np.array(ds[{self.name!r}])"
        )

    def __iter__(self) -> Iterator[Any]:
        return map(operator.itemgetter(self.name), RowIteration(self._source))

    def __contains__(self, value: object) -> bool:
        if self.field.is_bytes:
            return any(_equal(row, value) for row in self)
        try:
            return any(bool(np.any(block == value)) for block in self._blocks())
        except RecmapError:
            raise
        except ValueError as e:
            raise OptionError(f"column {self.name!r}: {e}") from None

    def __bool__(self) -> bool:
        if self._is_array and self.size == 1:
            return bool(np.asarray(self))
        raise OptionError(
            f"the truth value of column {self.name!r} is ambiguous: use .any(), .all() or len()"
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        self._fixed("np.asarray")
        if copy is False:
            raise OptionError(f"column {self.name!r} has to be read: copy=False is not possible")
        column = _array(get_rows(self._source, slice(None))[self.name])
        if dtype is None or np.dtype(dtype) == column.dtype:
            return np.array(column) if copy else column
        return column.astype(dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if any(isinstance(out, ColumnView) for out in options.get("out", ())):
            self[...] = None
        strings = self._compared(ufunc, method, inputs)
        if strings is not None:
            return strings
        if method == "at" and inputs[0] is self:
            self[...] = None
        arrays = [np.asarray(x) if isinstance(x, ColumnView) else x for x in inputs]
        try:
            if ufunc in _EQUALITY and method == "__call__" and not options:
                # Unlike the ufunc, the operator accepts any operand.
                return _EQUALITY[ufunc](*arrays)
            return getattr(ufunc, method)(*arrays, **options)
        except TypeError as e:
            raise OptionTypeError(f"column {self.name!r}: {e}") from e
        except ValueError as e:
            raise OptionError(f"column {self.name!r}: {e}") from e

    def _compared(
        self, ufunc: np.ufunc, method: str, inputs: tuple[Any, ...]
    ) -> npt.NDArray[np.bool_] | None:
        """Evaluate ``column == "cat"`` for strings; return None for other operations."""
        if method != "__call__" or ufunc not in _EQUALITY or self.field.shape:
            return None
        other = next((x for x in inputs if isinstance(x, str | bytes)), None)
        if other is None or not self.field.is_bytes:
            return None
        same = np.fromiter((_equal(row, other) for row in self), np.bool_, len(self))
        return same if ufunc is np.equal else ~same

    def sum(self, axis: Any = None, dtype: Any = None, out: Any = None, **options: Any) -> Any:
        """Return the sum, like ``ndarray.sum``, in bounded memory."""
        return self._reduced("sum", axis, out, options, dtype=dtype)

    def prod(self, axis: Any = None, dtype: Any = None, out: Any = None, **options: Any) -> Any:
        """Return the product, like ``ndarray.prod``, in bounded memory."""
        return self._reduced("prod", axis, out, options, dtype=dtype)

    def mean(self, axis: Any = None, dtype: Any = None, out: Any = None, **options: Any) -> Any:
        """Return the mean, like ``ndarray.mean``, in bounded memory."""
        return self._reduced("mean", axis, out, options, dtype=dtype)

    def var(
        self, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0, **options: Any
    ) -> Any:
        """Return the variance, like ``ndarray.var``, in bounded memory."""
        return self._reduced("var", axis, out, options, dtype=dtype, ddof=ddof)

    def std(
        self, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0, **options: Any
    ) -> Any:
        """Return the standard deviation, like ``ndarray.std``, in bounded memory."""
        return self._reduced("std", axis, out, options, dtype=dtype, ddof=ddof)

    def max(self, axis: Any = None, out: Any = None, **options: Any) -> Any:
        """Return the maximum, like ``ndarray.max``, in bounded memory."""
        return self._reduced("max", axis, out, options)

    def min(self, axis: Any = None, out: Any = None, **options: Any) -> Any:
        """Return the minimum, like ``ndarray.min``, in bounded memory."""
        return self._reduced("min", axis, out, options)

    def any(self, axis: Any = None, out: Any = None, **options: Any) -> Any:
        """Return whether any value is true, like ``ndarray.any``, in bounded memory."""
        return self._reduced("any", axis, out, options)

    def all(self, axis: Any = None, out: Any = None, **options: Any) -> Any:
        """Return whether all values are true, like ``ndarray.all``, in bounded memory."""
        return self._reduced("all", axis, out, options)

    def argmax(self, axis: Any = None, out: Any = None, **options: Any) -> Any:
        """Return the index of the maximum, like ``ndarray.argmax``, in bounded memory."""
        return self._reduced("argmax", axis, out, options)

    def argmin(self, axis: Any = None, out: Any = None, **options: Any) -> Any:
        """Return the index of the minimum, like ``ndarray.argmin``, in bounded memory."""
        return self._reduced("argmin", axis, out, options)

    def _reduced(
        self, name: str, axis: Any, out: Any, options: dict[str, Any], **known: Any
    ) -> Any:
        keepdims = bool(options.pop("keepdims", False))
        shape = self._reduced_shape(name, axis, keepdims)
        if name in ("sum", "prod") and known["dtype"] is None and isinstance(out, np.ndarray):
            known["dtype"] = out.dtype  # as NumPy does, so that a wider out= does not overflow
        if known.get("dtype") is not None:
            known["dtype"] = as_dtype("dtype", known["dtype"])
            if known["dtype"].hasobject:
                raise OptionError(f"{name}: dtype={known['dtype']}: use a dtype of numbers")
        given = {key: value for key, value in known.items() if value is not None or key == "ddof"}
        if options:  # such as where= and initial=
            whole = np.asarray(self)
            try:
                return getattr(whole, name)(
                    axis=axis, out=out, keepdims=keepdims, **given, **options
                )
            except TypeError as e:
                raise OptionTypeError(f"{name}: {e}") from None
            except (ValueError, ArithmeticError) as e:
                raise OptionError(f"{name}: {e}") from None
        with Guard():
            return reduce_blocks(
                name, self._blocks(), shape, self.dtype, axis, keepdims=keepdims, out=out, **given
            )

    def _reduced_shape(self, name: str, axis: Any, keepdims: bool) -> tuple[int, ...]:
        if self._is_array or self.field.has_nulls:
            return self._fixed(name)
        if self.field.is_bytes:
            strings = "text" if self.field.is_text else "byte strings"
            raise OptionTypeError(f"{name}: column {self.name!r} holds {strings}, not numbers")
        if axis is not None or keepdims or name.startswith("arg"):
            raise OptionTypeError(
                f"{name}: column {self.name!r} is {self.field}: rows of different lengths have no "
                f"axes; {name}() without an axis is over all values, or pad the rows first: "
                f"ds[a:b][{self.name!r}].pad()"
            )
        # There may be no values at all, and only reading shows that.
        first = next(self._blocks(), None)
        return (0 if first is None else len(first), *self.field.inner)

    def _blocks(self) -> Iterator[npt.NDArray[Any]]:
        """Yield the column in blocks of a few megabytes; for ragged rows, yield their values."""
        for batch in read_blocks(self._source, 1):
            column = batch[self.name]
            while isinstance(column, Ragged):
                column = column.flat
            if len(column):
                yield column

    @property
    def _is_array(self) -> bool:
        return not self.field.ragged and not self.field.is_bytes and not self.field.has_nulls

    def _fixed(self, what: str) -> tuple[int, ...]:
        """Return the shape, or raise if the column is not an array."""
        if self.field.has_nulls:
            raise OptionError(
                f"{what}: column {self.name!r} is {self.field}, and an array has no nulls; "
                f"ds[{self.name!r}][:] is a masked array or a Ragged, and ds.fill_null(...) fills "
                "them"
            )
        if not self._is_array:
            padded = self.field.ragged == 1 and not self.field.is_bytes
            how = f"ds[:][{self.name!r}]" + (".pad()" if padded else "")
            raise OptionError(
                f"{what}: column {self.name!r} is {self.field}: rows of different lengths are not "
                f"an array; use {how}"
            )
        return (len(self), *self.field.inner)

    def __getattr__(self, name: str) -> Any:
        if name in _OF_ARRAY:
            return getattr(np.asarray(self), name)
        raise AttributeError(
            f"'ColumnView' object has no attribute {name!r}; np.asarray(column) loads the column "
            "as an array",
            name=name,
            obj=self,
        )

    def __repr__(self) -> str:
        files = self._source.facts.files
        values = ", ".join(first_values(self._source, self.name))
        place = files[0] if files else "memory"
        return f"ColumnView({self.name!r}: {self.field} of {place}{values and ': '}{values})"


def _array(column: Column) -> npt.NDArray[Any]:
    assert isinstance(column, np.ndarray)
    return column


def _equal(row: Any, value: Any) -> bool:
    """Compare strings as bytes: a row with a value, or each item of a row."""
    if isinstance(row, Ragged):
        return any(_equal(item, value) for item in row)
    return bool(_as_bytes(row) == _as_bytes(value))


def _as_bytes(value: Any) -> Any:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
