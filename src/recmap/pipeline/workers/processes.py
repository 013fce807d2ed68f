"""A pool of worker processes that share memory with the consumer."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess

import numpy as np

from recmap.errors import OptionError, WorkerDiedError
from recmap.pipeline.workers.channel import Channel, Kind
from recmap.pipeline.workers.column_message import pack, unpack_result
from recmap.pipeline.workers.errors import death, rebuild
from recmap.pipeline.workers.patience import Patience
from recmap.pipeline.workers.pool import Answer, OrderedPool, Request, UnpicklableError, Work
from recmap.pipeline.workers.stacks import Stacks
from recmap.pipeline.workers.worker_main import serve

__all__ = ["ProcessPool"]

# Requests that a worker has at a time: one to work on, and one to go on with.
_IN_FLIGHT = 2
# Batches a consumer may hold in shared memory; more are copied. Each takes a
# descriptor, and there are not many more than a thousand.
_HELD = 128
# Seconds between looks at the workers, should the death of one not show in its socket.
_WATCH = 1.0
# Seconds an idle worker has to end by itself.
_GRACE = 1.0


@dataclass
class _Worker:
    """A worker process as its parent knows it."""

    name: str
    process: BaseProcess
    channel: Channel
    stacks: Stacks
    under_way: deque[Answer] = field(default_factory=deque)
    given: int = 0
    busy: float = 0.0

    def send(self, request: Request, future: Answer) -> None:
        sections = [[("positions", request.positions)], (request.batch or {}).items()]
        kind = Kind.ROWS if request.batch is None else Kind.BATCH
        self.channel.send(kind, pack(sections), number=request.number, epoch=request.epoch)
        self.under_way.append(future)
        self.given += 1

    def receive(self) -> None:
        """Takes one result; raises ConnectionError if the worker is gone."""
        message = self.channel.receive()
        if message is None:
            raise ConnectionResetError
        self.busy = message.busy
        future = self.under_way.popleft()  # a worker answers in order
        if message.kind is Kind.ERROR:
            ((_, error),) = message.sections[0]
            assert isinstance(error, np.ndarray)
            future.set_exception(rebuild(error.tobytes(), self.name))
        else:
            future.set_result([unpack_result(message.sections)])


class ProcessPool(OrderedPool):
    """Worker processes; every request goes to one that is free."""

    def __init__(self, work: Work, count: int, method: str) -> None:
        if multiprocessing.current_process().daemon:
            raise OptionError(
                f"workers={count}: this process is a daemon (as the workers of a PyTorch "
                'DataLoader are) and may not start others; use workers=0 or "threads:N" here'
            )
        # What the work holds may be memory that workers share and do not own.
        self._work = work
        self._waiting: deque[tuple[Request, Answer]] = deque()
        self._poll = select.poll()
        self._workers: list[_Worker] = []
        self._advice = (
            "Libraries with threads of their own may hang in a process that was forked; try "
            f'workers="spawn:{count}" or workers="threads:{count}"'
            if method == "fork"
            else f'Try workers="threads:{count}" or workers=0, where Ctrl-C shows more'
        )
        super().__init__(_end, self._workers, os.getpid())
        try:
            with _interrupts_later():
                for index in range(count):
                    self._start(index, count, method)
        except BaseException:
            self.close()
            raise
        self._by_descriptor = {w.channel.fileno(): w for w in self._workers}
        for descriptor in self._by_descriptor:
            self._poll.register(descriptor, select.POLLIN)

    def _start(self, index: int, count: int, method: str) -> None:
        name = f"worker {index + 1} of {count}"
        mine, theirs = socket.socketpair()
        channel = Channel(mine, limit=max(_HELD // count, _IN_FLIGHT))
        mine, shows = socket.socketpair()
        stacks = Stacks(mine)
        try:
            process = multiprocessing.get_context(method).Process(  # type: ignore[attr-defined]
                target=serve,
                args=(theirs, shows, os.getpid(), method == "fork", self._work),
                name=f"recmap {name}",
                daemon=True,
            )
            process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as e:
            channel.close()
            stacks.close()
            raise UnpicklableError(
                f'workers="{method}:{count}": the work cannot be pickled, which this start '
                f"method needs: {e} (use a function of a module rather than a lambda or a "
                f'closure, or workers="fork:{count}" or "threads:{count}")'
            ) from e
        except BaseException:
            channel.close()
            stacks.close()
            raise
        finally:
            theirs.close()
            shows.close()
        self._workers.append(_Worker(name, process, channel, stacks))

    def busy(self) -> list[float]:
        return [worker.busy for worker in self._workers]

    def _submit(self, request: Request) -> Answer:
        future: Answer = Future()
        self._waiting.append((request, future))
        return future

    def _wait(self, future: Answer) -> None:
        # Whether or not it is there already: workers may be free.
        self._collect(0)
        self._hand_out()
        patience = Patience(self._where, self._advice)
        while not future.done():
            if self._collect(_WATCH):
                patience.answered()
            else:
                patience.check()
            self._hand_out()

    def _where(self) -> str:
        """Where the workers stand that have something to do."""
        working = [worker for worker in self._workers if worker.under_way]
        for worker in working:
            worker.stacks.ask(worker.process.pid or 0)
        return "\n".join(
            f"{worker.name} (process {worker.process.pid}):\n{worker.stacks.answer()}"
            for worker in working
        )

    def _hand_out(self) -> None:
        while self._waiting:
            # Of those that are free, the one that was given least: each is told now and
            # then of the slots that came free.
            worker = min(self._workers, key=lambda w: (len(w.under_way), w.given))
            if len(worker.under_way) >= _IN_FLIGHT:
                return
            request, future = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                with self._talking_to(worker):
                    worker.send(request, future)

    def _collect(self, seconds: float) -> bool:
        """Takes the results that are there; waits so long for the first."""
        events = self._poll.poll(seconds * 1000)
        self._check()
        for descriptor, _ in events:
            worker = self._by_descriptor[descriptor]
            with self._talking_to(worker):
                worker.receive()
        if seconds and not events:
            for worker in self._workers:
                if worker.process.exitcode is not None:
                    raise _died(worker)
        return bool(events)

    @contextmanager
    def _talking_to(self, worker: _Worker) -> Iterator[None]:
        try:
            yield
        except OSError as e:
            self._check()  # another thread may have closed the socket
            if isinstance(e, ConnectionError):
                raise _died(worker) from e
            raise


def _died(worker: _Worker) -> WorkerDiedError:
    # Its socket was closed a moment before it can be asked for its exit code.
    worker.process.join(_GRACE)
    name = f"{worker.name} (process {worker.process.pid})"
    return death(name, worker.process.exitcode, working=bool(worker.under_way))


def _end(workers: list[_Worker], process: int) -> None:
    if os.getpid() != process:
        return  # a fork has the pool's memory, but the workers are not its own
    for worker in workers:
        worker.channel.close()
        worker.stacks.close()
        if worker.under_way:
            worker.process.terminate()
    deadline = time.monotonic() + _GRACE
    for worker in workers:
        worker.process.join(max(deadline - time.monotonic(), 0))
        if worker.process.exitcode is None:
            worker.process.kill()
            worker.process.join(_GRACE)
        if worker.process.exitcode is not None:
            worker.process.close()


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Ctrl-C waits meanwhile; processes that are started ignore it before it can come."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
