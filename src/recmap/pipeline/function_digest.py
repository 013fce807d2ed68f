"""A digest of a function: of its code, and of the values that it uses.

A conversion that was interrupted resumes only if its functions are the same. The name of a
function does not tell: its code, or a number that it uses, may have changed since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any, TypeAlias

import numpy as np

# What is written out; other objects are known by their class, because their text may differ from
# one run to the next.
_PLAIN = (bool, int, float, complex, str, bytes, np.generic, type(None), type(...))
_VALUES = (*_PLAIN, np.ndarray, list, tuple, set, frozenset, dict)

# The objects so far by their ids, each with its number.
_Seen: TypeAlias = dict[int, tuple[int, Any]]


def function_digest(fn: Any) -> str:
    """Return a digest that differs if a function, or what it uses, has changed.

    >>> factor = 2
    >>> first = function_digest(lambda row: {"y": row["x"] * factor})
    >>> second = function_digest(lambda row: {"y": row["x"] + factor})
    >>> first == second
    False
    """
    text = repr(_parts(fn, {}))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:12]


def _parts(value: Any, seen: _Seen) -> Any:
    """Return nested lists of text that stand for a value."""
    if isinstance(value, _PLAIN):
        return [type(value).__name__, repr(value)]
    if id(value) in seen:
        return ["seen", seen[id(value)][0]]
    seen[id(value)] = (len(seen), value)  # kept, so that its id stays its own
    kind = type(value).__qualname__
    match value:
        case np.ndarray():
            data = repr(value.tolist()).encode() if value.dtype.hasobject else value.tobytes()
            return [kind, str(value.dtype), value.shape, hashlib.sha256(data).hexdigest()]
        case list() | tuple():
            return [kind, *(_parts(each, seen) for each in value)]
        case set() | frozenset():
            return [kind, *sorted(repr(_parts(each, {})) for each in value)]
        case Mapping():
            return [kind, *([_parts(k, seen), _parts(v, seen)] for k, v in value.items())]
        case CodeType():
            return _code_parts(value, seen)
        case FunctionType():
            return [_name(value), *_function_parts(value, seen)]
        case MethodType():
            held = getattr(value.__self__, "__dict__", None)
            return [_parts(value.__func__, seen), _parts(held, seen)]
        case partial():
            held = (value.func, value.args, value.keywords)
            return [kind, *(_parts(each, seen) for each in held)]
    if callable(value) and not isinstance(value, type) and hasattr(value, "__dict__"):
        # An object that is called like a function: what it holds, and what calling it does.
        called = vars(type(value)).get("__call__")
        return [_name(type(value)), _parts(called, seen), _parts(vars(value), seen)]
    return [_name(value if callable(value) else type(value))]


def _name(value: Any) -> str:
    module = getattr(value, "__module__", "")
    return f"{module}.{getattr(value, '__qualname__', type(value).__qualname__)}"


def _function_parts(fn: FunctionType, seen: _Seen) -> list[Any]:
    used = [fn.__globals__[name] for name in _names(fn.__code__) if name in fn.__globals__]
    # Functions of other modules are known by their names: a library does not change by itself.
    near = [
        each
        for each in used
        if isinstance(each, _VALUES)
        or (isinstance(each, FunctionType) and each.__module__ == fn.__module__)
    ]
    cells = [cell.cell_contents for cell in fn.__closure__ or () if _is_filled(cell)]
    held = (fn.__code__, fn.__defaults__, fn.__kwdefaults__, cells, near)
    return [_parts(each, seen) for each in held]


def _code_parts(code: CodeType, seen: _Seen) -> list[Any]:
    return [code.co_code.hex(), *code.co_names, *(_parts(each, seen) for each in code.co_consts)]


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that code looks up, and those of the functions inside it."""
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names(each)


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:  # a variable that has not been assigned yet
        return False
    return True
