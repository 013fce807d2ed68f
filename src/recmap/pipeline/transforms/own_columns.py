"""Copy the arrays that a function returns and something else may still write to.

A function may keep an array and write the next batch into it while the loop still uses the
batch before. What it overwrites is lost, so such an array is copied at once. An array that was
made for this batch has no references but those of the batch, and is handed on as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from recmap.model.ragged import Column, Ragged
from recmap.model.schema import Batch


def own_columns(columns: Batch, inputs: Batch) -> tuple[Batch, bool]:
    """Return the columns, with copies of those that something else refers to.

    Also return whether there is such an array. Columns of ``inputs`` and views of them are not
    copied. The caller must hold no other references to the columns than these.
    """
    known = set(map(id, inputs.values()))
    new = [column for column in columns.values() if id(column) not in known]
    if max(map(_plain_references, new), default=0) <= _PLAIN:
        return columns, False
    del new
    shared = _shared(columns.values(), known, inputs)
    owned = {
        name: _copied(column) if _touches(column, shared.keys()) else column
        for name, column in columns.items()
    }
    return owned, any(map(_is_buffer, shared.values()))


def keeps_arrays(row: Mapping[str, Any], inputs: Batch) -> bool:
    """Return whether something else refers to an array of a row; see ``own_columns``."""
    arrays = (value for value in row.values() if isinstance(value, np.ndarray | Ragged))
    return any(map(_is_buffer, _shared(arrays, set(), inputs).values()))


def keeps_result(result: Mapping[str, Any], held: int = 1) -> bool:
    """Return whether something else refers to the dict that a function returned.

    Or to a list or tensor in it. These are always copied, but another thread may write to them
    before. ``held`` is how many references to the dict the caller has.
    """
    return sys.getrefcount(result) - held > _DICT or _most_references(result) > _VALUE


def _most_references(result: Mapping[str, Any]) -> int:
    most = 0
    for value in result.values():
        if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
            whole = getattr(value, "_base", None)  # of which the tensor is a view
            if whole is not None:
                most = max(most, sys.getrefcount(whole))
        elif not isinstance(value, list | bytearray):
            continue
        most = max(most, sys.getrefcount(value))
    return most


def _shared(columns: Iterable[Any], known: set[int], inputs: Batch) -> dict[int, Any]:
    """Return, by id, what the columns consist of and something else refers to."""
    links = _links(columns, known)
    shared = {key for key, link in links.items() if _others(*link) > _ALONE}
    # A view of an input refers to what that input is a view of.
    ours = set(_links(inputs.values(), set())) if shared else set()
    return {key: links[key][0] for key in shared - ours}


def _plain_references(column: Column) -> int:
    """Return the references to an array that owns its memory, which most new arrays do."""
    if type(column) is np.ndarray and column.base is None and column.flags.owndata:
        return sys.getrefcount(column)
    return sys.maxsize


def _links(columns: Iterable[Any], known: set[int]) -> dict[int, tuple[Any, int]]:
    """Return what the columns consist of, by id, each with the references to it from here."""
    links: dict[int, tuple[Any, int]] = {}
    waiting = [column for column in columns if id(column) not in known]
    while waiting:
        each = waiting.pop()
        count = links[id(each)][1] if id(each) in links else 0
        links[id(each)] = each, count + 1
        if not count:
            waiting += [inside for inside in _inside(each) if id(inside) not in known]
    return links


def _inside(each: Any) -> list[Any]:
    if isinstance(each, Ragged):
        return [each.values, each.offsets]
    if isinstance(each, np.ndarray) and each.base is not None:
        return [each.base]
    return []


def _others(each: Any, count: int) -> int:
    """Return how many references to an object there are besides ``count``."""
    if isinstance(each, bytes):
        return 0  # it never changes
    owner = isinstance(each, Ragged) or (
        isinstance(each, np.ndarray) and (each.base is not None or each.flags.owndata)
    )
    # Of memory that NumPy did not allocate, nothing is known.
    return sys.getrefcount(each) - count if owner else sys.maxsize


def _is_buffer(each: Any) -> bool:
    """Return whether it is memory to write into, and not a tensor made for this batch."""
    return isinstance(each, np.ndarray) or not hasattr(each, "__dlpack__")


def _touches(column: Any, shared: Collection[int]) -> bool:
    return id(column) in shared or any(_touches(each, shared) for each in _inside(column))


def _copied(column: Column) -> Column:
    if isinstance(column, Ragged):
        return Ragged(_copied(column.values), np.array(column.offsets))
    return np.array(column)


# The references that are found to an array in a dict, and nowhere else. Python versions differ in
# which variables count.
_alone: Batch = {"x": np.empty(1)}
_PLAIN = max(map(_plain_references, list(_alone.values())))
_ALONE = max(_others(*link) for link in _links(_alone.values(), set()).values())


def _references(result: Mapping[str, Any]) -> int:
    return sys.getrefcount(result) - 1


def _calibrated() -> tuple[int, int]:
    result = {"x": [0]}
    return _references(result), _most_references(result)


_DICT, _VALUE = _calibrated()
