"""Options that ``rm.convert`` and ``ds.save`` once had: errors with what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from recmap.errors import OptionTypeError


def _columns(names: Any) -> str:
    listed = [names] if isinstance(names, str) else list(names)
    return f"select({', '.join(map(repr, listed))})"


def _rows(rows: Any) -> str:
    match rows:
        case slice(start=None | 0, stop=int(stop), step=None) if stop >= 0:
            return f"take({stop})"
        case slice(start=int(start), stop=int(stop), step=None) if 0 <= start <= stop:
            return f"skip({start}).take({stop - start})"
    return f"select({rows!r})"


# What became a verb, in the order in which the options were applied.
_VERBS: dict[str, Callable[[Any], str]] = {
    "columns": _columns,
    "where": "where({!r})".format,
    "rows": _rows,
    "rename": "rename({!r})".format,
    "cast": "cast({!r})".format,
    "shuffle": lambda _: "shuffle()",
}
# What is an argument of one of these verbs.
_ARGUMENTS = {"casting": "cast", "seed": "shuffle"}


def refuse_moved(where: str, given: Mapping[str, Any], opened: str) -> None:
    """Raise for options that are verbs now; ``opened`` is the dataset before them, as text."""
    moved = [name for name in given if name in _VERBS or name in _ARGUMENTS]
    if moved:
        chain = ".".join([opened, *_chain(given), "save(dst)"])
        raise OptionTypeError(f"{where}does not take {' and '.join(moved)}: write {chain}")


def _chain(given: Mapping[str, Any]) -> list[str]:
    """Return the verbs that do what the options did."""
    verbs = {name: text(given[name]) for name, text in _VERBS.items() if given.get(name)}
    if "casting" in given:
        dtypes = repr(given["cast"]) if given.get("cast") else "{...}"
        verbs["cast"] = f"cast({dtypes}, casting={given['casting']!r})"
    if "seed" in given:
        verbs["shuffle"] = f"shuffle(seed={given['seed']!r})"
    return [verbs[name] for name in _VERBS if name in verbs]


def opening_text(options: Mapping[str, Any]) -> str:
    """Return a call of ``rm.open`` as text. Options of a store may hold secrets."""
    return f"rm.open({', '.join(['src', *keywords(options)])})"


def keywords(options: Mapping[str, Any]) -> list[str]:
    """Return options as they are written in a call."""
    return [
        f"{name}={{...}}" if name == "storage" else f"{name}={value!r}"
        for name, value in options.items()
    ]
