"""Dense columns with nulls. NumPy's masked arrays are slow to import, so few modules need this."""

from __future__ import annotations

from typing import Any

import numpy as np

from recmap.errors import ColumnError


class MaskedColumn(np.ma.MaskedArray[Any, Any]):
    """A masked array whose null rows are None, like those of any other column.

    The values of a row are null together. In every other way it is a ``np.ma.MaskedArray``.

    >>> column = MaskedColumn([1, 2], mask=[False, True])
    >>> column[0], column[1], column.sum()
    (np.int64(1), None, np.int64(1))
    >>> MaskedColumn([[1, 2], [3, 4]], mask=[[False, False], [True, True]]).tolist()
    [[1, 2], None]
    """

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, int | np.integer):
            return super().__getitem__(key)
        row, mask = self.data[key], self.mask
        return None if isinstance(mask, np.ndarray) and _is_null(mask[key]) else row

    def tolist(self, fill_value: Any = None) -> Any:
        """Return the rows as Python values; None if they are null."""
        if fill_value is not None or self.ndim == 0:
            return super().tolist(fill_value)
        return [row if row is None else row.tolist() for row in self]


def masked_column(array: np.ma.MaskedArray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a masked array as a column; a plain array if nothing is masked."""
    mask = np.ma.getmaskarray(array)
    if not (mask.any() if mask.dtype == bool else mask.tobytes().strip(b"\0")):
        return np.asarray(array)
    rows = mask.reshape(len(mask), -1) if mask.dtype == bool and mask.ndim else None
    if rows is None or bool((rows != rows[:, :1]).any()):
        raise ColumnError(
            "only parts of a row of this array are masked, and only whole rows can be null; "
            "fill it first, with array.filled(value), and keep the mask as another column"
        )
    values = np.array(array.data)
    values[rows[:, 0]] = np.zeros((), array.dtype)[()]
    return MaskedColumn(values, mask=mask)


def _is_null(mask: Any) -> bool:
    return bool(mask.size and mask.all())
