"""Check and parse arguments.

Each function returns the value in a standard form, or raises a helpful error:
``OptionTypeError`` for a value of the wrong type, ``OptionError`` for any other invalid value.
"""

from __future__ import annotations

import difflib
import operator
import re
import reprlib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError, FieldNotFoundError, OptionError, OptionTypeError

_PATTERN = frozenset("*?[")
# Names of columns that an error lists.
_LISTED = 40
_DTYPES = ["bool", "bfloat16", "bytes", "text", "datetime64[ns]", "timedelta64[ns]"]
_DTYPES += [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
_DTYPES += ["float16", "float32", "float64", "complex64", "complex128"]
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# System libraries survive a fork only on Linux.
_START_METHOD = "fork" if sys.platform == "linux" else "spawn"


def as_whole(name: str, value: Any, least: int = 0, most: int | None = None) -> int:
    """Return a Python or NumPy integer as an ``int``; refuse booleans."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole:
        raise OptionTypeError(f"{name}={value!r}: give a whole number of {least:,} or more")
    if int(value) < least:
        raise OptionError(f"{name}={value}: give a whole number of {least:,} or more")
    if most is not None and int(value) > most:
        raise OptionError(f"{name}={value}: give a whole number up to {most:,}")
    return int(value)


def as_row(key: Any) -> int | None:
    """Return a row number for a Python or NumPy integer or a 0-d tensor; None for other keys."""
    if isinstance(key, int | np.integer):
        return None if isinstance(key, bool) else int(key)
    if isinstance(key, list | slice | np.bool_) or not hasattr(key, "__index__"):
        return None
    if np.asarray(key).dtype == bool:
        return None
    try:
        return operator.index(key)
    except (TypeError, ValueError):  # an array of several numbers
        return None


def check_flag(name: str, value: Any, use: str = "True or False") -> bool:
    """Return True or False; refuse text such as "no", which would count as true."""
    if not isinstance(value, bool | np.bool_):
        raise OptionTypeError(f"{name}={value!r}: use {use}")
    return bool(value)


def as_slice(name: str, value: Any) -> slice:
    """Return a slice with bounds that are integers or None."""
    if not isinstance(value, slice):
        raise OptionTypeError(f"{name}={value!r}: give a slice, such as slice(0, 1000)")
    try:
        bounds = [
            None if n is None else operator.index(n) for n in (value.start, value.stop, value.step)
        ]
    except TypeError:
        raise OptionTypeError(f"{name}={value}: the bounds of a slice are whole numbers") from None
    if bounds[2] == 0:
        raise OptionError(f"{name}={value}: the step of a slice cannot be 0")
    return slice(*bounds)


def as_list(name: str, value: Any, example: str) -> list[Any]:
    """Return several values as a list; refuse text and bytes."""
    check_iterable(name, value, example)
    return list(value)


def check_iterable(name: str, value: Any, example: str) -> None:
    """Refuse anything but a list or another iterable of values."""
    if isinstance(value, str | bytes | bytearray | Mapping) or not is_iterable(value):
        raise OptionTypeError(f"{name}={value!r}: give a list, such as {example}")


def is_iterable(value: Any) -> bool:
    """Return whether a value is iterable. A 0-d array is not, though it is an ``Iterable``."""
    try:
        iter(value)
    except TypeError:
        return False
    return True


def as_names(name: str, value: Any) -> list[str]:
    """Return column names as a list; a string is a single name."""
    if isinstance(value, str):
        return [value]
    names = as_list(name, value, '["x", "label"]')
    for each in names:
        if not isinstance(each, str):
            raise OptionTypeError(f"{name}: {each!r}: the name of a column is text")
    return names


def is_pattern(name: Any) -> bool:
    """Return whether the name of a column may be a pattern: ``train/*``."""
    return isinstance(name, str) and not _PATTERN.isdisjoint(name)


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that match a pattern. A star stands for slashes, too.

    >>> matching("train/*", ["train/x", "train/y/z", "test/x"])
    ['train/x', 'train/y/z']
    """
    return [name for name in names if fnmatchcase(name, pattern)]


def with_matches(fields: Any, names: Iterable[str]) -> Any:
    """Return the columns that were asked for, with those that match in place of patterns."""
    known = list(names)
    if fields is None or not any(is_pattern(name) and name not in known for name in fields):
        return fields
    types = fields if isinstance(fields, Mapping) else dict.fromkeys(fields)
    named = [name for name in types if not is_pattern(name) or name in known]
    found: dict[Any, Any] = {}
    for name, kind in types.items():
        matched = [name] if name in named else matching(name, known)
        if not matched and kind is None:
            raise FieldNotFoundError(no_column(name, known))
        matched = matched or [name]  # with a type, it may be in records that were not looked at
        # What is named has the type that is given by name.
        found |= {each: kind for each in matched if each == name or each not in named}
    return found if isinstance(fields, Mapping) else list(found)


def check_choice(name: str, value: Any, choices: Iterable[str | None]) -> Any:
    """Return a value that is one of the choices; refuse others."""
    known = list(choices)
    if not isinstance(value, str | None) or value not in known:
        listed = ", ".join(f'"{choice}"' if choice else "None" for choice in known)
        raise OptionError(f"{name}={value!r}: use one of {listed}")
    return value


def given_types(verb: str, columns: Any, fields: Any) -> Any:
    """Return the types of columns that were given, by the name ``columns`` or an earlier one."""
    if columns is not None and fields is not None:
        raise OptionTypeError(f"{verb}: fields= is the old name of columns=; give only one")
    name, given = ("fields", fields) if columns is None else ("columns", columns)
    hint = '{"crop": "float32[*]"}, the types of columns; ds.select("x") keeps some columns'
    return None if given is None else as_mapping(name, given, hint)


def as_mapping(name: str, value: Any, example: str) -> dict[Any, Any]:
    """Return a dict."""
    if not isinstance(value, Mapping):
        raise OptionTypeError(f"{name}={reprlib.repr(value)}: give a dict, such as {example}")
    return dict(value)


def as_dtype(name: str, value: Any) -> np.dtype[Any]:
    """Return a dtype of NumPy, or of ``ml_dtypes`` if that is installed."""
    try:
        made: np.dtype[Any] = np.dtype(value)
        return made
    except Exception as e:  # NumPy lets others through, such as a SyntaxError for ","
        found = _extension_dtype(value)
        if found is None:
            why = did_you_mean(_dtype_name(value), _DTYPES) or f", such as 'float32' ({e})"
            raise OptionTypeError(f"{name}={value!r} is not a dtype NumPy knows{why}") from None
        return found


def _dtype_name(value: Any) -> str:
    """Return the name of a dtype of any library: of torch.float32, "float32"."""
    name = str(value).rpartition(".")[2].lower()
    return {"string": "text", "utf8": "text", "binary": "bytes", "object": ""}.get(name, name)


def did_you_mean(name: Any, names: Iterable[str]) -> str:
    """Return the most similar of some names as a question, or nothing.

    >>> did_you_mean("lable", ["image", "label"])
    "; did you mean 'label'?"
    """
    known = list(names)
    near = [each for each in known if each.lower() == str(name).lower()]
    near = near or difflib.get_close_matches(str(name), known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def no_column(name: Any, names: Iterable[str]) -> str:
    """Return the text that says that there is no such column, and which there are."""
    if not isinstance(name, str):
        return f"{name!r} is not the name of a column, which is text"
    known = list(names)
    if is_pattern(name):
        return f"no column matches {name!r}; there are: {', '.join(known[:_LISTED]) or 'none'}"
    listed = ", ".join(known[:_LISTED]) or "none"
    more = f" and {len(known) - _LISTED:,} more" if len(known) > _LISTED else ""
    return f"no column {name!r}; there are: {listed}{more}{did_you_mean(name, known)}"


def _extension_dtype(dtype: npt.DTypeLike) -> np.dtype[Any] | None:
    # NumPy recognizes bfloat16 only after ml_dtypes has been imported.
    try:
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, str(dtype)))
        return found
    except (ImportError, AttributeError, TypeError):
        return None


def check_column_name(name: Any) -> None:
    """Refuse names that no format can store."""
    if not isinstance(name, str):
        kind = type(name).__name__
        raise ColumnError(f"column {name!r}: the name of a column is text, not {kind}")
    try:
        name.encode()
    except UnicodeEncodeError as e:
        raise ColumnError(
            f"column {name!r}: the name is not valid Unicode (a surrogate at character "
            f"{e.start}), and no format can store it; give the column another name"
        ) from None


def parse_size(size: int | str) -> int:
    """Return a size in bytes, given a number or text such as ``"512MB"`` or ``"2GiB"``.

    >>> parse_size("512MB"), parse_size("2 GiB"), parse_size(1000)
    (512000000, 2147483648, 1000)
    """
    if isinstance(size, int | np.integer) and not isinstance(size, bool):
        return int(size)
    if not isinstance(size, str):
        raise OptionError(f"cannot read the size {size!r}: write it like '512MB' or '2GiB'")
    match = re.fullmatch(r"\s*(\d{1,30}(?:\.\d+)?)\s*([KMGT]?)(I?)B?\s*", size.upper())
    if match is None:
        raise OptionError(f"cannot read the size {size!r}: write it like '512MB' or '2GiB'")
    number, unit, binary = match.groups()
    return int(float(number) * (_BINARY if binary else _UNITS)[unit])


def size_text(size: float) -> str:
    """Format a size in bytes for people.

    >>> size_text(1536), size_text(2.5e9)
    ('1.54 kB', '2.5 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size) < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


@dataclass(frozen=True)
class Workers:
    """The kind and number of workers.

    With ``serial``, the caller does all the work. ``method`` is how processes are started,
    "fork" or "spawn", if the user has said so.
    """

    kind: Literal["serial", "threads", "processes"]
    count: int
    method: str | None = None

    @property
    def start_method(self) -> str:
        """How to start processes."""
        return self.method or _START_METHOD

    def reading(self, *, remote: bool) -> Workers:
        """Return the workers for rows that are ``remote``, in a store, or not."""
        if not remote or self.kind != "processes":
            return self
        if self.method == "fork":
            raise OptionError(
                f'workers="fork:{self.count}": a process that is forked cannot read from a '
                f'store; use workers="spawn:{self.count}"'
            )
        return replace(self, method="spawn")


def parse_workers(workers: Any, number: Literal["threads", "processes"] = "processes") -> Workers:
    """Parse ``workers=``. ``number`` is the kind of worker that a plain number means.

    >>> parse_workers("threads:4")
    Workers(kind='threads', count=4, method=None)
    >>> parse_workers("spawn:2")
    Workers(kind='processes', count=2, method='spawn')
    >>> parse_workers(4, number="threads")
    Workers(kind='threads', count=4, method=None)
    >>> parse_workers(None)
    Workers(kind='serial', count=0, method=None)
    """
    if isinstance(workers, np.integer):
        workers = int(workers)
    if workers is None or (type(workers) is int and workers == 0):
        return Workers("serial", 0)
    text = f"{number}:{workers}" if type(workers) is int else str(workers)
    match = re.fullmatch(r"(threads|processes|fork|spawn):0*([1-9][0-9]{0,3})", text)
    if match is None:
        raise OptionError(
            f"workers={workers!r}: use a number of {number} (0 for none), or "
            '"threads:4", "processes:4", "fork:4" or "spawn:4"'
        )
    kind, count = match[1], int(match[2])
    if kind == "threads":
        return Workers("threads", count)
    return Workers("processes", count, None if kind == "processes" else kind)


def as_workers(name: str, value: Any) -> Workers:
    """Return at least one worker; a plain number means threads."""
    if isinstance(value, str):
        return parse_workers(value, "threads")
    return Workers("threads", as_whole(name, value, 1))


_T = TypeVar("_T")


def option(
    default: Any,
    check: Callable[[str, Any], Any],
    help: str = "",
    *,
    metavar: str = "",
    words: Mapping[str, Any] | None = None,
) -> Any:
    """Return the field of a dataclass of options.

    ``check`` gets the name and the value, and returns what the field holds. The rest is for the
    command line, which has an option for each field with ``help``: what to call its value, or
    the ``words`` that stand for its values.
    """
    told = {"help": help, "metavar": metavar, "words": words}
    return field(default=default, metadata={"check": check, **told})


def choice(default: str | None, choices: Iterable[str | None], help: str = "") -> Any:
    """Return the field of an option that is one of a few words."""
    words = {word: word for word in choices if word is not None}
    return option(default, partial(check_choice, choices=choices), help, words=words)


def checked(kind: type[_T], arguments: Mapping[str, Any]) -> _T:
    """Return the options of this kind that are among the arguments of a function, checked.

    None is not checked where it is the default.
    """
    made = {}
    for each in fields(kind):  # type: ignore[arg-type]  # a dataclass
        value = arguments.get(each.name, each.default)
        unset = value is None and each.default is None
        made[each.name] = value if unset else each.metadata["check"](each.name, value)
    return kind(**made)


# Options of older versions, and how to spell them now.
_RENAMED = {
    "to": "format={value!r}",
    "rows_per_shard": "shards='{value} rows'",
    "shard_size": "shards={value!r}",
    "address": "engine='ray:{value}'",
    "durable": "options={{'durable': {value!r}}}",
    "name": "options={{'name': {value!r}}}",
    "split": "options={{'split': {value!r}}}",
}


def unknown_option(
    name: str, known: Iterable[str] | None, where: str = "", value: Any = ...
) -> OptionTypeError:
    """Return the error for an unknown option.

    It names the option that replaced it, or the most similar one.
    """
    if name in _RENAMED and value is not ...:
        return OptionTypeError(
            f"{where}{name}={value!r} is now written {_RENAMED[name].format(value=value)}"
        )
    names = sorted(known or ())
    meant = did_you_mean(name, names) or f"; there are: {', '.join(names) or 'none'}"
    return OptionTypeError(f"{where}there is no option {name!r}{meant}")
