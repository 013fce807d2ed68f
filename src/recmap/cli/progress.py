"""How far a long verb is, on a terminal; nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from recmap.conversion.progress import Progress, Watcher
from recmap.files.byte_size import size_text
from recmap.tfrecord.progress import SizeWatcher

__all__ = ["watching_bytes", "watching_rows"]

_Show = Callable[[int, int | None, str], None]


@contextmanager
def watching_rows(what: str) -> Iterator[Watcher | None]:
    """A bar of rows, rate, time left and memory."""
    with _bar(what) as show:
        if show is None:
            yield None
            return

        def watch(now: Progress) -> None:
            of = "" if now.total is None else f" of {now.total:,}"
            parts = [f"{now.rows:,}{of} rows", f"{size_text(now.rate)}/s"]
            parts += [] if now.left is None else [f"{_clock(now.left)} left"]
            show(now.rows, now.total, _join(parts))

        yield watch


@contextmanager
def watching_bytes(what: str) -> Iterator[SizeWatcher | None]:
    """A bar of bytes and memory."""
    with _bar(what) as show:
        if show is None:
            yield None
            return

        def watch(done: int, total: int) -> None:
            show(done, total, _join([f"{size_text(done)} of {size_text(total)}"]))

        yield watch


@contextmanager
def _bar(what: str) -> Iterator[_Show | None]:
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        # It moves to and fro until the total is known.
        task = bars.add_task(what, total=None, text="")
        yield lambda done, total, text: bars.update(task, completed=done, total=total, text=text)


def _join(parts: list[str]) -> str:
    memory = _own_memory()
    return ", ".join([*parts, f"{size_text(memory)} of memory"] if memory else parts)


def _own_memory() -> int | None:
    """Bytes this process holds that are in no file, where the system tells."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) << 10
    except OSError:
        return None
    return None


def _clock(seconds: float) -> str:
    """
    >>> _clock(61.2), _clock(4000)
    ('1:01', '1:06:40')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
