"""A digest of a function: of its code, and of the values that it uses.

A conversion that was interrupted resumes only if its functions are the same. The name of a
function does not tell: its code, or a number that it uses, may have changed since.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from types import (
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
    WrapperDescriptorType,
)
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


def function_fingerprint(fn: Any) -> str | None:
    """Return a digest that is the same only if a function does the same, or None if none can be.

    ``function_digest`` knows objects by their class, and functions of other modules by their name.
    Here, objects are pickled, and the code of all modules that are not installed counts.
    """
    try:
        return _pickled(fn).decode()
    except Exception:  # whatever pickling an object raises
        return None


# Where Python's own modules are, and what folders of installed packages are called.
_STANDARD_LIBRARY = os.path.join(os.path.dirname(os.path.abspath(os.__file__)), "")
_PACKAGES = {"site-packages", "dist-packages"}
# What a class holds that says nothing of what it does.
_UNTOLD = ("__dict__", "__weakref__", "__doc__", "__firstlineno__", "__static_attributes__")
# Parts of a class that were written in C, or made for __slots__.
_DESCRIPTORS = (
    ClassMethodDescriptorType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    WrapperDescriptorType,
)


class _DigestPickler(pickle.Pickler):
    """Pickles functions, classes and modules as what they do, not only as their names."""

    def persistent_id(self, value: Any) -> Any:
        # Their order differs from run to run.
        plain = type(value) is set or type(value) is frozenset
        return (type(value).__name__, sorted(map(_pickled, value))) if plain else None

    def reducer_override(self, value: Any) -> Any:
        match value:
            case FunctionType() if _is_own(value.__module__):
                # The state comes after the name, so that functions may call themselves.
                return _stand_for, (_name(value),), _function_state(value)
            case CodeType():
                # Not the lines, which move if anything before them changes. As text: objects that
                # are one after compiling may be two when they come from a .pyc file.
                constants = [_constant(each) for each in value.co_consts]
                return _stand_for, (value.co_code, repr(value.co_names), constants)
            case ModuleType():
                return _stand_for, (value.__name__,), _module_state(value)
            case type() if _is_own(value.__module__):
                state = [(n, each) for n, each in vars(value).items() if n not in _UNTOLD]
                return _stand_for, (_name(value), value.__bases__), (None, {"state": state})
            case property() | classmethod() | staticmethod():
                parts = [getattr(value, n, None) for n in ("fget", "fset", "fdel", "__func__")]
                return _stand_for, (type(value).__name__, parts)
        if isinstance(value, _DESCRIPTORS):
            return _stand_for, (value.__qualname__,)
        return NotImplemented


def _stand_for(*parts: Any) -> None:
    """Stand for a value that is never unpickled."""


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return value
    return repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)


def _pickled(value: Any) -> bytes:
    """Return a digest of what a value is pickled as."""
    digest = hashlib.sha256()
    file: Any = SimpleNamespace(write=digest.update)  # a file that keeps nothing else
    _DigestPickler(file, protocol=5).dump(value)
    return digest.hexdigest().encode()


def _function_state(fn: FunctionType) -> tuple[None, dict[str, Any]]:
    used = {name: fn.__globals__[name] for name in _names(fn.__code__) if name in fn.__globals__}
    cells = [cell.cell_contents for cell in fn.__closure__ or () if _is_filled(cell)]
    held = [fn.__code__, fn.__defaults__, fn.__kwdefaults__, cells, sorted(used.items()), vars(fn)]
    return None, {"state": held}


def _module_state(module: ModuleType) -> tuple[None, dict[str, Any]]:
    """Return the text of a module of the user, and the modules that it uses."""
    if not _is_own(module.__name__):
        return None, {"state": getattr(module, "__version__", None)}
    with open(str(module.__file__), "rb") as file:
        text = file.read()
    used = [each for each in vars(module).values() if isinstance(each, ModuleType)]
    names = [getattr(each, "__module__", None) for each in vars(module).values()]
    used += [sys.modules[name] for name in names if isinstance(name, str) and name in sys.modules]
    own = {each.__name__: each for each in used if _is_own(each.__name__) and each is not module}
    return None, {"state": [text, sorted(own.items())]}


def _is_own(module: str | None) -> bool:
    """Return whether a module is of the user, who may change it at any time, and not installed."""
    found = sys.modules.get(module or "")
    if found is None or module == "__main__":
        return True
    file = getattr(found, "__file__", None)
    if found.__name__.partition(".")[0] == __name__.partition(".")[0]:
        return False
    if file is None or os.path.abspath(file).startswith(_STANDARD_LIBRARY):
        return False
    return _PACKAGES.isdisjoint(os.path.abspath(file).split(os.sep))
