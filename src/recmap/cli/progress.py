"""How far a long verb is, on a terminal; nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from recmap.model.byte_size import size_text
from recmap.model.progress import Progress, Watcher

__all__ = ["watching"]


@contextmanager
def watching(verb: str) -> Iterator[Watcher | None]:
    """Give what draws a bar with rows or bytes, rate, time left and memory."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        # It moves to and fro until a total is known.
        task = bars.add_task(verb, total=None, text="")

        def watch(now: Progress) -> None:
            total = None if now.fraction is None else 1.0
            bars.update(task, completed=now.fraction or 0.0, total=total, text=_text(now))

        yield watch


def _text(now: Progress) -> str:
    memory = _own_memory()
    return ", ".join([str(now), f"{size_text(memory)} of memory"] if memory else [str(now)])


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
