"""Features that records have but the schema lacks.

A schema inferred from a sample may lack a feature that only other records have. Every read
counts such features and warns once. It raises if the rows are about to be written, because
the feature would be lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from recmap.errors import FieldMismatchError, Message, Option, UnknownFeatureWarning
from recmap.native import _core
from recmap.tfrecord.faults import KIND_NAMES
from recmap.warn import warn

Where: TypeAlias = Callable[[int], tuple[str, int]]
"""Tells the file of a decoded row, and its number among the records of the file."""

# The most names listed in a message.
_NAMED = 5


class _Mode(threading.local):
    strict = False


_mode = _Mode()


@contextmanager
def refuse_unknown_features() -> Iterator[None]:
    """Make unknown features an error in this thread. Use it if the rows will be written."""
    before, _mode.strict = _mode.strict, True
    try:
        yield
    finally:
        _mode.strict = before


class UnknownFeatures:
    """The unknown features seen in one dataset. ``origin`` says where its schema is from."""

    def __init__(self, origin: str, warned: bool = False) -> None:
        self._origin, self._warned = origin, warned
        self._lock = threading.Lock()
        self._rows: dict[str, int] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return UnknownFeatures, (self._origin, self._warned)

    @property
    def rows(self) -> dict[str, int]:
        """For each unknown feature, the number of records read that have it."""
        with self._lock:
            return dict(self._rows)

    def met(self, found: Sequence[_core.Unknown], where: Where) -> None:
        """Count unknown features; warn about the first, or raise where they are refused."""
        with self._lock:
            for _, key, _, rows, _ in found:
                name = _text(key)
                self._rows[name] = self._rows.get(name, 0) + rows
            silent = self._warned and not _mode.strict
            self._warned = self._warned or not _mode.strict
        if silent:
            return
        in_lists, key, kind, _, row = min(found, key=lambda feature: feature[4])
        file, record = where(row)
        name, what = _text(key), "feature list" if in_lists else "feature"
        listed = "" if kind == _core.Kind.none else f" ({KIND_NAMES[kind.value]})"
        has = f"{file}: record {record:,} has a {what} {name!r}{listed}"
        remedy = Message(
            f'run rm.index("{file}") or `recmap index`, which finds the features of all records, '
            "and open it again; or choose the features you want with ",
            Option("fields", [...]),
        )
        if _mode.strict:
            raise FieldMismatchError(
                Message(
                    f"{has}, which is not in the schema ({self._origin}) and would be lost; found "
                    f"so far: {self._counts()}",
                    hint=(remedy,),
                ),
                file=file,
                record=record,
                field=name,
            )
        warn(
            Message(
                f"{has}, which is not in the schema ({self._origin}) and is not read; found so "
                f"far: {self._counts()}. To read it, ",
                remedy,
                ".",
            ),
            UnknownFeatureWarning,
        )

    def _counts(self) -> str:
        rows = self.rows
        texts = [f"{name!r} in {n:,} record{'s'[: n > 1]}" for name, n in rows.items()]
        more = [f"and {len(texts) - _NAMED:,} more"] if len(texts) > _NAMED else []
        return ", ".join(texts[:_NAMED] + more)


def _text(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")
