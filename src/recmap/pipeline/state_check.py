"""Refuse what is not a state, or not one of this pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from recmap.adapters.resumable import check_workers, is_saved_state, loaded_state
from recmap.errors import OptionError
from recmap.model.order import ENDLESS
from recmap.model.preview import quantity
from recmap.pipeline.sharding import Share
from recmap.pipeline.transforms.batch import Grouping

#: The version of the states that are saved.
STATE_VERSION = 2
# More than any cluster has. Without a limit, a damaged state would make recmap loop over ranks.
_MOST_RANKS = 1 << 17


def checked(given: Any, slices: int) -> list[dict[str, Any]]:
    """Return the states that ``restore`` was given, each with all its fields.

    ``slices`` is the number of ``take`` and ``skip`` stages that count rows after filters.
    """
    states = [given] if isinstance(given, Mapping) else given
    if isinstance(given, str):  # the state inside of what state_dict() returned
        states = [{"state": given}]
    if not isinstance(states, list | tuple) or not states:
        raise OptionError("restore takes the dict that state() returned, or a list of them")
    if not all(isinstance(state, Mapping) for state in states):
        raise OptionError("restore takes the dict that state() returned, or a list of them")
    return [_checked(_inner(state), slices) for state in states]


def _inner(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state inside of one that ``to_torch().state_dict()`` returned."""
    if not is_saved_state(state):
        return state
    loaded = loaded_state(state)
    check_workers(loaded, 0)
    inner: Mapping[str, Any] = loaded["state"]
    return inner


def _checked(state: Mapping[str, Any], slices: int) -> dict[str, Any]:
    version = state.get("version")
    if type(version) is not int or version != STATE_VERSION:
        newer = type(version) is int and version > STATE_VERSION
        raise OptionError(
            f"restore: a state of version {version}, but this recmap knows only {STATE_VERSION}; "
            "update recmap"
            if newer
            else "restore: not a state of a pipeline: it has no version that recmap knows"
        )
    state = {"done": 0, "ahead": [], **state}
    for name, fits in _FIELDS.items():
        if name not in state or not fits(state[name]):
            raise OptionError(
                f"restore: a damaged state: {name!r} is "
                f"{_shown(state[name]) if name in state else 'missing'}"
            )
    if not state["rank"] < state["world"] <= _MOST_RANKS or state["block"] < 1:
        raise OptionError("restore: a damaged state: its rank, world and block do not fit")
    texts = isinstance(state.get("verbs"), list) and all(
        isinstance(verb, str) for verb in state["verbs"]
    )
    kept = len(state["kept"]) in (0, slices)
    if not texts or not _is_data(state.get("data")) or not kept:
        raise OptionError("restore: a damaged state: what it was saved from cannot be read")
    return state


def _is_whole(value: Any) -> bool:
    return type(value) is int and 0 <= value <= ENDLESS


def _are_whole(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(_is_whole(each) for each in value)


def _is_left(value: Any) -> bool:
    if value is None:
        return True
    if not isinstance(value, Mapping) or not _is_whole(value.get("tail")):
        return False
    runs = value.get("runs")
    if not isinstance(runs, list | tuple):
        return False
    if not all(_are_whole(run) and len(run) == 2 for run in runs):
        return False
    # Spans are in order and do not touch, and all come before the tail.
    edges = [edge for run in runs for edge in run]
    return edges == sorted(set(edges)) and max(edges, default=0) <= value["tail"]


def check_held(state: Mapping[str, Any], grouping: Grouping) -> None:
    """Refuse held rows that this grouping would not hold, or that come later."""
    held = state["held"]
    try:
        numbers = grouping.held_numbers(held)
        fits = _are_whole(numbers) and max(numbers, default=-1) < state["at"]
    except (TypeError, ValueError, KeyError, IndexError, AttributeError):
        fits = False
    if not fits:
        raise OptionError(f"restore: a damaged state: 'held' is {_shown(held)}")


def check_numbers(state: Mapping[str, Any], share: Share, repeat: int | None, all_: bool) -> None:
    """Refuse numbers that a run of this pipeline never reaches.

    Without ``all_``, refuse only those that would read rows that do not exist.
    """
    # A rank that is filled up has one row more than others.
    most = len(replace(share, rank=state["rank"])) + share.block
    wrong = {
        "at": state["at"] > most,
        "turn": state["turn"] > state["epoch"] or (repeat or ENDLESS) <= state["turn"] > 0,
        "kept": max(state["kept"], default=0) > state["at"],
        "left": state["left"] is not None and state["left"]["tail"] > share.left.total,
        "ahead": any(not each or each["tail"] > share.left.total for each in state["ahead"]),
    }
    for name, is_wrong in wrong.items():
        if is_wrong and (all_ or name in ("left", "ahead")):
            raise OptionError(
                f"restore: a damaged state: {name!r} is {_shown(state[name])}, which is nowhere in "
                "this pipeline"
            )


def _shown(value: Any) -> str:
    try:
        return ascii(value)[:60]
    except RecursionError:
        return "nested too deeply"


def _is_data(value: Any) -> bool:
    texts, numbers = ("schema", "names", "set", "content"), ("count", "rows")
    return isinstance(value, list | tuple) and all(
        isinstance(each, Mapping)
        and isinstance(files := each.get("files"), list)
        and all(isinstance(name, str) for name in files)
        and all(isinstance(each.get(name), str) for name in texts)
        and all(_is_whole(each.get(name)) for name in numbers)
        and min(1, each["count"]) <= len(files) <= each["count"]
        for each in value
    )


_FIELDS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("epoch", "turn", "at", "given", "done", "rank", "world", "block"), _is_whole),
    "held": lambda value: isinstance(value, list | tuple | Mapping),  # _check_held looks closer
    "kept": _are_whole,
    "left": _is_left,
    "ahead": lambda value: isinstance(value, list | tuple) and all(map(_is_left, value)),
}


def check_world(state: Mapping[str, Any], world: int, workers: int) -> None:
    """Refuse the state of one of several workers with a different number of ranks.

    What is left depends on what all workers have read, which none of them knows.
    """
    if workers > 1 and state["world"] != world:
        raise OptionError(
            f"load_state_dict: saved with {quantity(state['world'], 'rank')}, but there "
            f"{'is' if world == 1 else 'are'} {world} now; in the middle of an epoch, states of "
            f"{workers} workers need the same number of ranks. Finish the epoch with that number. "
            "To change it at any time, save pipeline.state(batches=n), or use at most one worker"
        )
