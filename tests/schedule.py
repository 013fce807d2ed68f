"""Run recmap's threads in an order that is drawn from a seed.

Inside ``Schedule(seed)``, one thread runs at a time. Wherever threads meet (at a queue, a lock,
a condition, an event, the start or the end of a thread), the seed decides which of those that
can go on does. The same seed gives the same order, so a failure can be played again. A wait with
a timeout ends only if nothing else can go on: no time is spent. If nothing can go on at all,
``StuckError`` says where every thread waits.

recmap does not know about this. Meanwhile, ``Lock``, ``SimpleQueue`` and their like mean the
classes of this file in recmap's modules and in ``concurrent.futures``. Open datasets inside, so
that they are made of those. zarr, whose own threads use
``concurrent.futures``, does not work inside.
"""

from __future__ import annotations

import gc
import importlib
import pkgutil
import queue
import random
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any, Self

from recmap.store import fetch

__all__ = ["Schedule", "StuckError"]

# A module that is first imported inside would have the real classes, so import these before.
_PACKAGES = ("machine", "local", "cache", "store", "formats", "model", "pipeline", "tfrecord")
# ThreadPoolExecutor and Future; both take what they need from their ``threading``.
_EXECUTORS = ("concurrent.futures._base", "concurrent.futures.thread")
# Seconds for the thread whose turn it is to reach its next point.
_PATIENCE = 60.0
# Timeouts after which those who wait that often will wait forever.
_TIMEOUTS = 200

_running: list[Schedule] = []


class StuckError(Exception):
    """Raised when no thread can go on."""


class _OverError(BaseException):
    """Ends a thread that still waits when the schedule is over."""


def _always() -> bool:
    return True


class _Task:
    """A thread, and what it waits for."""

    def __init__(self, number: int, name: str) -> None:
        self.number, self.name, self.point = number, name, "start"
        self.can_go: Callable[[], bool] = _always
        self.timed = self.timed_out = False
        self._turn = threading.Semaphore(0)

    def go(self) -> None:
        self._turn.release()

    def wait(self) -> None:
        if not self._turn.acquire(timeout=_PATIENCE):
            raise AssertionError(f"{self.name} waited too long at {self.point}")


class Schedule:
    """A context in which the threads of recmap run in the order of a seed.

    ``trace`` is that order: at each point, the number of the thread that went on, and from where.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.trace: list[tuple[int, str]] = []
        self._random = random.Random(seed)
        self._tasks: dict[int, _Task] = {}
        self._started = self._timeouts = 0
        self._over = False
        self._stuck: str | None = None

    def __enter__(self) -> Self:
        assert not _running, "one schedule at a time"
        self._replaced = _Replaced()
        self._main = self.new_task("main")
        self.add(threading.get_ident(), self._main)
        gc.disable()  # when it would run depends on what happened before
        _running.append(self)
        _renew_pools()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        try:
            for task in list(self._tasks.values()):
                if task is not self._main:
                    task.go()
                    self._main.wait()
        finally:
            self._replaced.restore()
            _renew_pools()
            _running.clear()
            gc.enable()

    def new_task(self, name: str) -> _Task:
        self._started += 1
        return _Task(self._started - 1, name)

    def add(self, ident: int | None, task: _Task) -> None:
        """Have a thread take part, from its first turn on."""
        assert ident is not None
        self._tasks[ident] = task

    def leave(self) -> None:
        """Let another thread go on: the one that calls this ends."""
        del self._tasks[threading.get_ident()]
        (self._main if self._over else self._choose()).go()

    def point(
        self, where: str, can_go: Callable[[], bool] = _always, *, timed: bool = False
    ) -> bool:
        """Return when it is this thread's turn and ``can_go()`` is true.

        If ``timed``, return False when no thread can go on.
        """
        task = self._tasks.get(threading.get_ident())
        assert task is not None, f"{threading.current_thread().name} is not scheduled ({where})"
        if not self._over:
            task.point, task.can_go, task.timed, task.timed_out = where, can_go, timed, False
            chosen = self._choose()
            if chosen is not task:
                chosen.go()
                task.wait()
            if task is self._main and self._stuck is not None:
                stuck, self._stuck = self._stuck, None
                raise StuckError(stuck)
        if self._over and not can_go():
            if not timed:
                raise _OverError
            return False
        return not task.timed_out

    def _choose(self) -> _Task:
        tasks = list(self._tasks.values())
        able = [task for task in tasks if task.can_go()]
        timed_out = not able
        if timed_out:
            able = [task for task in tasks if task.timed]
            self._timeouts += 1
        if not able or self._timeouts > _TIMEOUTS:
            waits = ", ".join(f"{task.name} at {task.point}" for task in tasks)
            self._stuck = f"seed {self.seed}: every thread waits: {waits}"
            self._timeouts = 0
            return self._main
        chosen = able[0] if len(able) == 1 else self._random.choice(able)
        chosen.timed_out = timed_out
        self.trace.append((chosen.number, chosen.point))
        return chosen


def _point(where: str, can_go: Callable[[], bool] = _always, *, timed: bool = False) -> bool:
    # What was made inside may be closed afterwards, when only one thread is left.
    return _running[0].point(where, can_go, timed=timed) if _running else can_go()


class _Thread(threading.Thread):
    def start(self) -> None:
        self.schedule = _running[0]
        self.task = self.schedule.new_task(self.name)
        super().start()
        self.schedule.add(self.ident, self.task)
        _point("Thread.start")

    def run(self) -> None:
        self.task.wait()
        try:
            super().run()
        except _OverError:
            pass
        finally:
            self.task.point = "end"
            self.schedule.leave()

    def join(self, timeout: float | None = None) -> None:
        ended = _point("Thread.join", lambda: self.task.point == "end", timed=timeout is not None)
        if ended:
            super().join()


class _Lock:
    def __init__(self) -> None:
        self._held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not blocking:
            _point("Lock.acquire")
        elif not _point("Lock.acquire", lambda: not self._held, timed=timeout >= 0):
            return False
        held, self._held = self._held, True
        return not held

    def release(self) -> None:
        assert self._held, "released a lock that is not held"
        self._held = False

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _RLock:
    def __init__(self) -> None:
        self._owner: int | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = threading.get_ident()
        if self._owner != me:
            if not blocking:
                _point("RLock.acquire")
            elif not _point("RLock.acquire", lambda: self._owner is None, timed=timeout >= 0):
                return False
            if self._owner is not None:
                return False
        self._owner, self._depth = me, self._depth + 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _Condition:
    def __init__(self, lock: Any = None) -> None:
        self._lock = _RLock() if lock is None else lock
        self._waiting: deque[list[bool]] = deque()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def wait(self, timeout: float | None = None) -> bool:
        notified = [False]
        self._waiting.append(notified)
        self.release()
        try:
            return _point("Condition.wait", lambda: notified[0], timed=timeout is not None)
        finally:
            if not notified[0]:
                self._waiting.remove(notified)
            self.acquire()

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        while not predicate():
            if not self.wait(timeout):
                return predicate()
        return True

    def notify(self, n: int = 1) -> None:
        for _ in range(min(n, len(self._waiting))):
            self._waiting.popleft()[0] = True

    def notify_all(self) -> None:
        self.notify(len(self._waiting))

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _Event:
    def __init__(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        _point("Event.set")

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        return _point("Event.wait", self.is_set, timed=timeout is not None)


class _Semaphore:
    def __init__(self, value: int = 1) -> None:
        self._value = value

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        waits = blocking and timeout != 0
        can_go = (lambda: self._value > 0) if waits else _always
        _point("Semaphore.acquire", can_go, timed=timeout is not None)
        if not self._value:
            return False
        self._value -= 1
        return True

    def release(self, n: int = 1) -> None:
        self._value += n

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _SimpleQueue:
    def __init__(self) -> None:
        self._items: deque[Any] = deque()

    def __class_getitem__(cls, _: Any) -> type[_SimpleQueue]:
        return cls

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        del block, timeout  # there is always room
        self._items.append(item)
        _point("SimpleQueue.put")

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        can_go = (lambda: len(self._items) > 0) if block else _always
        _point("SimpleQueue.get", can_go, timed=timeout is not None)
        if not self._items:
            raise queue.Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


_SCHEDULED: dict[Any, type] = {
    threading.Thread: _Thread,
    threading.Lock: _Lock,
    threading.RLock: _RLock,
    threading.Condition: _Condition,
    threading.Event: _Event,
    threading.Semaphore: _Semaphore,
    threading.BoundedSemaphore: _Semaphore,
    queue.SimpleQueue: _SimpleQueue,
}
_LOCKS: dict[type, type] = {type(threading.Lock()): _Lock, type(threading.RLock()): _RLock}


def _with_scheduled(module: ModuleType) -> SimpleNamespace:
    """Return a module with other classes, and everything else as it is."""
    return SimpleNamespace(
        **{name: _REPLACED.get(id(value), value) for name, value in vars(module).items()}
    )


# By id: not everything in a module can be hashed.
_REPLACED: dict[int, Any] = {id(real): scheduled for real, scheduled in _SCHEDULED.items()}
_REPLACED |= {id(module): _with_scheduled(module) for module in (threading, queue)}


class _Replaced:
    """What stands for the real classes, and for locks that exist already."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []
        for holder, name in _places():
            value = getattr(holder, name)
            lock = _LOCKS.get(type(value))
            self._before.append((holder, name, value))
            setattr(holder, name, lock() if lock else _REPLACED[id(value)])

    def restore(self) -> None:
        for holder, name, value in self._before:
            setattr(holder, name, value)


@cache
def _places() -> list[tuple[Any, str]]:
    """Return where classes and locks are to be replaced: each holder, and the name there."""
    places = []
    for module in _modules():
        for name, value in vars(module).items():
            if id(value) in _REPLACED or type(value) in _LOCKS:
                places.append((module, name))
            elif type(value).__module__.startswith("recmap."):  # it lasts as long as the process
                inside = getattr(value, "__dict__", {})
                places += [(value, each) for each in inside if type(inside[each]) in _LOCKS]
    return places


def _renew_pools() -> None:
    """Have the threads that last as long as the process started anew."""
    fetch._after_fork()
    for pool in _pools():
        pool.cache_clear()


@cache
def _pools() -> list[Any]:
    """Return the cached functions that make a pool of threads."""
    functions = (each for module in _modules() for each in vars(module).values())
    cached = [each for each in functions if hasattr(each, "cache_clear")]
    return [each for each in cached if each.__annotations__.get("return") == "Threads"]


@cache
def _modules() -> list[ModuleType]:
    modules = [sys.modules[name] for name in _EXECUTORS]
    for package in _PACKAGES:
        folder = importlib.import_module(f"recmap.{package}")
        for found in pkgutil.walk_packages(folder.__path__, f"recmap.{package}."):
            with suppress(ImportError):  # it needs a package that is not installed
                modules.append(importlib.import_module(found.name))
    return modules
