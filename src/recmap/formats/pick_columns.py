"""Choosing the arrays of a file that are columns: those of equal length."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from recmap.errors import DataError, FieldNotFoundError, LeftOutWarning, Message, Option
from recmap.formats.column_readers import ColumnReader

__all__ = ["choose_columns", "common_length"]

# Maximum number of arrays named in a warning: a file of weights has hundreds of lengths.
_NAMED = 10


def choose_columns(
    path: str,
    found: Mapping[str, ColumnReader],
    refused: Mapping[str, str],
    names: Sequence[str] | None,
) -> dict[str, ColumnReader]:
    """Return the requested columns, or those with the most common length.

    A warning names the arrays that are left out. ``refused`` says why an array cannot be a
    column at all.
    """
    if names is not None:
        return {name: _asked(path, name, found, refused) for name in names}
    if not found:
        why = "; ".join(f"{name!r} {reason}" for name, reason in refused.items())
        raise DataError(f"{path}: no arrays with rows ({why or 'it is empty'})", file=path)
    rows = common_length(len(column) for column in found.values())
    left = [f"{n!r} has {len(c):,} rows" for n, c in found.items() if len(c) != rows]
    left += [f"{name!r} {reason}" for name, reason in refused.items()]
    if len(left) > _NAMED:
        left[_NAMED:] = [f"{len(left) - _NAMED:,} more"]
    if left:
        warnings.warn(
            Message(
                f"{path}: left out, beside columns of {rows:,} rows: {'; '.join(left)} (",
                Option("fields", [...]),
                " chooses columns)",
            ),
            LeftOutWarning,
            stacklevel=2,
        )
    return {name: column for name, column in found.items() if len(column) == rows}


def common_length(lengths: Iterable[int]) -> int:
    """Return the most common length; if several are equally common, the largest of them.

    Lengths of 0 and 1 count only if there are no others.
    """
    counts = Counter(lengths)
    return max(counts, key=lambda length: (length > 1, counts[length], length))


def _asked(
    path: str, name: str, found: Mapping[str, ColumnReader], refused: Mapping[str, str]
) -> ColumnReader:
    if name in refused:
        raise DataError(f"{path}: {name!r} {refused[name]}", file=path, field=name)
    if name not in found:
        raise FieldNotFoundError(f"{path}: no column {name!r}; there are: {', '.join(found)}")
    return found[name]
