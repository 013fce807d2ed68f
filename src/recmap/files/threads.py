"""Threads, as many as the system lets start."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from recmap.files.cpus import Share, own_share, within
from recmap.files.mapped import guarded

__all__ = ["Threads", "start_thread"]

_T = TypeVar("_T")
_P = ParamSpec("_P")

# Enough for Python and the libraries that are called in these threads.
_STACK = 1 << 20
_starting = threading.Lock()


class Threads(ThreadPoolExecutor):
    """A pool that makes do with fewer threads if the system lets no more start. If there
    is none at all, the work is done by the caller. All work is done inside a guard, so that
    a mapped file that is cut meanwhile is an error.
    """

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        future = super().submit(guarded(fn), *args, **kwargs)
        if self._threads or not future.cancel():
            return future
        done: Future[_T] = Future()
        done.set_running_or_notify_cancel()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as e:  # raised for those who ask for the result
            done.set_exception(e)
        return done

    def _adjust_thread_count(self) -> None:
        with _small_stack(), _none_if_refused():
            super()._adjust_thread_count()


def start_thread(target: Callable[..., None], *args: Any, name: str) -> threading.Thread | None:
    """A thread that does not keep the interpreter from ending; None if none can start."""
    limited = _limited(target, own_share())
    thread = threading.Thread(target=limited, args=args, name=name, daemon=True)
    with _small_stack(), _none_if_refused():
        thread.start()
    return None if thread.ident is None else thread


def _limited(target: Callable[..., None], share: Share | None) -> Callable[..., None]:
    def run(*args: Any) -> None:
        with within(share):
            target(*args)

    return run if share is not None else target


@contextmanager
def _none_if_refused() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, MemoryError) as e:
        if isinstance(e, RuntimeError) and "start new thread" not in str(e):
            raise


@contextmanager
def _small_stack() -> Iterator[None]:
    """Stacks count against a limit on the memory of a process whether they are used or
    not, and are 8 MB by default. Where there is no such limit they cost nothing.
    """
    limits = (resource.RLIMIT_DATA, resource.RLIMIT_AS)
    if all(resource.getrlimit(limit)[0] == resource.RLIM_INFINITY for limit in limits):
        yield
        return
    with _starting:  # one size at a time
        before = threading.stack_size(_STACK)
        try:
            yield
        finally:
            threading.stack_size(before)


def _forked() -> None:
    global _starting  # noqa: PLW0603 - another thread may have held it
    _starting = threading.Lock()


os.register_at_fork(after_in_child=_forked)
