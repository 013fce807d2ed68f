"""A pool of worker processes that share memory with the consumer.

The life of a worker: the pool starts it with two sockets, one for requests and results and
one for its stack, and with the work, which it inherits (fork) or receives pickled (spawn). It
runs ``worker_main.serve``: it waits for a request, does the work, and sends the result or the
error. A worker answers in the order it was asked and has up to two requests: one to work on,
and one to continue with. Columns travel both ways in slots of shared memory.

A worker ends when close() closes its socket. A worker in the middle of a request is
terminated, and killed if that takes longer than a second. A worker also ends when its parent
dies, however that happens. If a worker itself dies, the consumer gets a WorkerDiedError, and
the pool is closed.
"""

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
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess

import numpy as np

from recmap.errors import OptionError, WorkerDiedError
from recmap.machine.forks import forking
from recmap.pipeline.workers.channel import Channel, MessageKind, close_in_forks
from recmap.pipeline.workers.column_message import pack, unpack_result
from recmap.pipeline.workers.errors import ProcessStack, StallTimer, death_error, rebuild
from recmap.pipeline.workers.lookahead import lookahead_of
from recmap.pipeline.workers.pool import Answer, OrderedPool, Request, UnpicklableError, Work
from recmap.pipeline.workers.worker_main import SpawnedWork, serve

# Requests a worker has at a time.
_IN_FLIGHT = 2
# Batches a consumer may hold in shared memory; further ones are copied. Each takes a
# file descriptor, and a process may be limited to about a thousand.
_HELD = 128
# Seconds between checks of the processes, in case a death does not show in the socket.
_WATCH = 1.0
# Seconds an idle worker has to end on its own.
_GRACE = 1.0


@dataclass
class _Worker:
    """A worker process as its parent sees it."""

    name: str
    process: BaseProcess
    end: socket.socket
    channel: Channel
    stack: ProcessStack
    spawned_work: SpawnedWork | None = None
    in_flight: deque[Answer] = field(default_factory=deque)
    given: int = 0
    busy: float = 0.0

    def send(self, request: Request, answer: Answer) -> None:
        sections = [[("positions", request.positions)], (request.batch or {}).items()]
        kind = MessageKind.ROWS if request.batch is None else MessageKind.BATCH
        self.channel.send(kind, pack(sections), number=request.number, epoch=request.epoch)
        self.in_flight.append(answer)
        self.given += 1

    def receive(self) -> None:
        """Take one result. Raise ConnectionResetError if the worker is gone."""
        message = self.channel.receive()
        if message is None:
            raise ConnectionResetError
        self.busy = message.busy
        answer = self.in_flight.popleft()
        if message.kind is MessageKind.ERROR:
            ((_, error),) = message.sections[0]
            assert isinstance(error, np.ndarray)
            answer.set_exception(rebuild(error.tobytes(), self.name))
        else:
            answer.set_result([unpack_result(message.sections)])

    def hang_up(self) -> None:
        """Close the sockets, which ends the worker once it is idle."""
        self.channel.close()
        self.stack.abandon()


class ProcessPool(OrderedPool):
    """Worker processes. Each request goes to the least busy one."""

    def __init__(self, work: Work, count: int, method: str, ahead: int = 0) -> None:
        if multiprocessing.current_process().daemon:
            raise OptionError(
                f"workers={count}: this process is a daemon (as the workers of a PyTorch "
                'DataLoader are) and may not start others; use workers=0 or "threads:N" here'
            )
        # Kept alive: workers may share memory that the work holds without owning it.
        self._work = work
        self._queued: deque[tuple[Request, Answer]] = deque()
        # A worker that fetches rows ahead has to know what comes.
        fetches = lookahead_of(work) is not None
        self._in_flight = max(_IN_FLIGHT, -(-(ahead + 1) // count) if fetches else 0)
        self._workers: list[_Worker] = []
        self._advice = _advice(count, method)
        super().__init__(_end, self._workers, os.getpid())
        try:
            if method != "fork":
                # Starting the tracker unblocks interrupts, so do it first.
                resource_tracker.ensure_running()
            with _interrupts_delayed():
                for index in range(count):
                    self._workers.append(_start(work, index, count, method))
            # Each waits until its process has imported its modules, so let all begin first.
            for worker in self._workers:
                if worker.spawned_work is not None:
                    with self._talking_to(worker):
                        worker.spawned_work.send(worker.end)
        except BaseException:
            self.close()
            raise
        self._poll = select.poll()
        self._by_descriptor = {w.channel.fileno(): w for w in self._workers}
        for descriptor in self._by_descriptor:
            self._poll.register(descriptor, select.POLLIN)

    def busy(self) -> list[float]:
        return [worker.busy for worker in self._workers]

    def _submit(self, request: Request) -> Answer:
        answer: Answer = Future()
        self._queued.append((request, answer))
        return answer

    def _wait(self, answer: Answer) -> None:
        # Do this even if the answer is ready: workers may be idle.
        self._collect(0)
        self._hand_out()
        timer = StallTimer(self._where, self._advice)
        while not answer.done():
            if self._collect(_WATCH):
                timer.reset()
            else:
                timer.check()
            self._hand_out()

    def _hand_out(self) -> None:
        """Send queued requests to workers that have room for one."""
        while self._queued:
            # Of those with the fewest in flight, take the one that was given least: every
            # message also tells a worker which of its slots are free.
            worker = min(self._workers, key=lambda w: (len(w.in_flight), w.given))
            if len(worker.in_flight) >= self._in_flight:
                return
            request, answer = self._queued.popleft()
            if answer.set_running_or_notify_cancel():
                with self._talking_to(worker):
                    worker.send(request, answer)

    def _collect(self, seconds: float) -> bool:
        """Take the results that are ready; wait up to ``seconds`` for the first."""
        events = self._poll.poll(seconds * 1000)
        self._check_open()
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
            self._check_open()  # another thread may have closed the socket
            if isinstance(e, ConnectionError):
                raise _died(worker) from e
            raise

    def _where(self) -> str:
        """Describe where the busy workers are."""
        working = [worker for worker in self._workers if worker.in_flight]
        for worker in working:
            worker.stack.request(worker.process.pid or 0)
        return "\n".join(
            f"{worker.name} (process {worker.process.pid}):\n{worker.stack.read()}"
            for worker in working
        )


def _start(work: Work, index: int, count: int, method: str) -> _Worker:
    name = f"worker {index + 1} of {count}"
    our_end, worker_end = socket.socketpair()
    our_stack, worker_stack = socket.socketpair()
    channel = Channel(our_end, limit=max(_HELD // count, _IN_FLIGHT))
    stack = ProcessStack(our_stack)
    close_in_forks(stack)
    spawned_work = None if method == "fork" else SpawnedWork(work)
    process = multiprocessing.get_context(method).Process(  # type: ignore[attr-defined]
        target=serve,
        args=(worker_end, worker_stack, os.getpid(), spawned_work or work),
        name=f"recmap {name}",
        daemon=True,
    )
    worker = _Worker(name, process, our_end, channel, stack, spawned_work)
    try:
        with forking():
            process.start()
    except (pickle.PicklingError, AttributeError, TypeError) as e:
        worker.hang_up()
        raise UnpicklableError(
            f'workers="{method}:{count}": the work cannot be pickled, which this start '
            f"method needs: {e} (use a function of a module rather than a lambda or a "
            f'closure, or workers="fork:{count}" or "threads:{count}")'
        ) from e
    except OSError as e:  # no more processes, no memory, or no working directory
        worker.hang_up()
        raise OptionError(
            f'workers="{method}:{count}": the system could not start {name}: {e} (use fewer, or '
            f'workers="threads:{count}")'
        ) from e
    except BaseException:
        worker.hang_up()
        raise
    finally:
        worker_end.close()
        worker_stack.close()
    return worker


def _advice(count: int, method: str) -> str:
    """Return what to try if workers stall."""
    if method == "fork":
        return (
            "Libraries that start threads may hang in a forked process; try "
            f'workers="spawn:{count}" or workers="threads:{count}"'
        )
    return f'Try workers="threads:{count}" or workers=0, where Ctrl-C shows more'


def _died(worker: _Worker) -> WorkerDiedError:
    # The socket closes a moment before the exit code is known.
    worker.process.join(_GRACE)
    name = f"{worker.name} (process {worker.process.pid})"
    return death_error(
        name,
        worker.process.exitcode,
        working=bool(worker.in_flight),
        started=worker.stack.ready,
        spawned=worker.spawned_work is not None,
    )


def _end(workers: list[_Worker], process: int) -> None:
    if os.getpid() != process:
        return  # a forked process has the pool's memory, but does not own the workers
    for worker in workers:
        worker.hang_up()
        if worker.in_flight:
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
def _interrupts_delayed() -> Iterator[None]:
    """Delay Ctrl-C until the processes started here ignore it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
