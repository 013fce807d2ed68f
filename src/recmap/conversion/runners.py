"""Write the shards of a conversion in threads or processes on this machine.

Each process gets the same ShardWriter as a thread or a cluster task would, so the bytes and the
errors are the same. Temporary files are named after the parent process, which removes them if a
worker process is killed.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from concurrent.futures import FIRST_EXCEPTION, Future
from concurrent.futures import wait as wait_for_futures
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_connections
from types import FunctionType
from typing import Any, Protocol, TypeAlias

from recmap.conversion.cleanup import clear_temporary
from recmap.conversion.plan import Shard
from recmap.conversion.shard_writer import ShardWriter, StoppedError
from recmap.errors import OptionError, RecmapError, WorkerDiedError
from recmap.local.temporary import Process, acting_for, this_process
from recmap.machine.forks import forking, keep_inherited
from recmap.machine.threads import Threads
from recmap.model.progress import Counter
from recmap.model.source import Source
from recmap.native import _core

# Seconds to let processes stop and clean up before they are killed.
_PATIENCE = 30.0

# A pickled writer, and functions that are not pickled.
_Sent: TypeAlias = tuple[bytes, list[FunctionType]]


class Runner(Protocol):
    """Runs the writer for each shard of a plan, in this process or elsewhere."""

    #: How many processes share the memory.
    processes: int
    #: How many shards each of them writes at a time, or None for as many as fit.
    threads: int | None
    #: Whether this process writes the shards.
    in_this_process: bool
    #: Whether the shards are written here, where temporary files of this process are seen.
    on_this_machine: bool

    def run(self, writer: ShardWriter, shards: list[Shard], counter: Counter) -> None:
        """Write these shards. After an error, stop the others and raise it."""
        ...

    def explain(self, files: int) -> str:
        """Return text to append to the explanation of the budget, given the number of files."""
        ...


class ThreadRunner:
    """Runs as many threads as the budget allows, each of which writes one shard at a time."""

    processes = 1
    in_this_process = on_this_machine = True

    def __init__(self, threads: int | None) -> None:
        self.threads = threads

    def run(self, writer: ShardWriter, shards: list[Shard], counter: Counter) -> None:
        """Write these shards."""
        stop = threading.Event()

        def write(shard: Shard) -> None:
            try:
                writer.write(shard, counter.add, stop.is_set)
            except StoppedError:
                return  # the error of another shard is raised
            except BaseException:
                stop.set()  # here, so that no other shard is finished before the caller wakes up
                raise

        with Threads(writer.budget.workers, "recmap-convert") as pool:
            futures = [pool.submit(write, shard) for shard in shards]
            try:
                _wait_for(futures)
            except BaseException:
                stop.set()
                for future in futures:
                    future.cancel()
                raise

    def explain(self, files: int) -> str:
        """Return an empty string: the budget already explains the threads."""
        del files
        return ""


def _wait_for(futures: list[Future[None]]) -> None:
    pending = set(futures)
    while pending:
        # Wait briefly, to notice an interrupt.
        done, pending = wait_for_futures(pending, timeout=0.2, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()


class ProcessRunner:
    """Runs several processes, each of which writes one shard at a time."""

    threads: int | None = 1
    in_this_process = False
    on_this_machine = True

    def __init__(self, source: Source, count: int, method: str | None) -> None:
        if source.facts.once:
            raise OptionError(
                "these rows can be read only here, not in other processes; save them to a file "
                "first, or use threads"
            )
        self.processes = count
        self._context: Any = multiprocessing.get_context(method)

    def explain(self, files: int) -> str:
        """Return a note on how many processes share the work."""
        return f"; {min(self.processes, files):,} processes, each with its share of the memory"

    def run(self, writer: ShardWriter, shards: list[Shard], counter: Counter) -> None:
        """Write these shards."""
        workers: list[_ShardProcess] = []
        try:
            sent = _sent(writer, self._context.get_start_method())
            while len(workers) < min(self.processes, len(shards)):
                workers.append(_ShardProcess(self._context, sent, workers))
            _hand_out(workers, deque(shards), counter)
        finally:
            for worker in workers:
                worker.stop()
            for worker in workers:
                worker.join()
            if not writer.lock.lost:
                # Only a killed process leaves files; one that failed or was stopped leaves none.
                clear_temporary([shard.path for shard in shards])


def _sent(writer: ShardWriter, method: str) -> _Sent:
    """Return a writer as bytes: unpickling opens files, which each process has to do itself.

    A forked process has the functions of the parent, so lambdas and closures need not be pickled.
    They come in a list, and the bytes have their places in it.
    """
    file, functions = io.BytesIO(), list[FunctionType]()

    def place_of(value: Any) -> int | None:
        if not isinstance(value, FunctionType):
            return None
        functions.append(value)
        return len(functions) - 1

    pickler = pickle.Pickler(file)
    if method == "fork":
        pickler.persistent_id = place_of  # type: ignore[method-assign]
    try:
        pickler.dump(writer)
    except (pickle.PicklingError, AttributeError, TypeError) as e:
        raise OptionError(
            f"these rows cannot be sent to other processes ({method}): {e}; use a function of "
            "a module, or save in threads: map(fn, workers='threads:4')"
        ) from e
    return file.getvalue(), functions


def _received(sent: _Sent) -> ShardWriter:
    unpickler = pickle.Unpickler(io.BytesIO(sent[0]))  # noqa: S301 - our own
    unpickler.persistent_load = sent[1].__getitem__  # type: ignore[method-assign]
    writer: ShardWriter = unpickler.load()
    return writer


class _ShardProcess:
    """The parent's handle of a process that writes shards."""

    def __init__(self, context: Any, writer: _Sent, others: list[_ShardProcess]) -> None:
        self.name = f"process {len(others) + 1}"
        self.shard: Shard | None = None
        self.connection, theirs = context.Pipe()
        # A forked process inherits the parent's ends. It closes them, or it would not notice
        # when the parent closes its own.
        ends = [self.connection, *(other.connection for other in others)]
        try:
            self._process = context.Process(
                target=_serve,
                args=(theirs, ends, os.getpid(), this_process(), writer),
                name=f"recmap {self.name}",
                daemon=True,
            )
            with forking():
                self._process.start()
        finally:
            theirs.close()

    def begin(self, shard: Shard) -> None:
        self.shard = shard
        try:
            self.connection.send(shard)
        except OSError:
            raise self._died() from None

    def receive(self) -> Any:
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            raise self._died() from None

    def stop(self) -> None:
        """Tell the process to stop at its next slab."""
        self.connection.close()

    def join(self) -> None:
        self._process.join(_PATIENCE)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()

    def _died(self) -> WorkerDiedError:
        self._process.join(_PATIENCE)
        code = self._process.exitcode
        path = "" if self.shard is None else f" while it wrote {self.shard.path}"
        advice = "; memory may have run out: use fewer" if code == -signal.SIGKILL else ""
        return WorkerDiedError(
            f"{self.name} of the conversion ended with exit code {code}{path}{advice}",
            exitcode=code,
        )


def _hand_out(workers: list[_ShardProcess], shards: deque[Shard], counter: Counter) -> None:
    for worker in workers:
        worker.begin(shards.popleft())
    while busy := [worker for worker in workers if worker.shard is not None]:
        # Wait briefly, to notice an interrupt.
        ready = wait_for_connections([worker.connection for worker in busy], timeout=0.2)
        for worker in [worker for worker in busy if worker.connection in ready]:
            told = worker.receive()
            if isinstance(told, BaseException):
                raise told
            if told is not None:
                counter.add(*told)
                continue
            worker.shard = None
            if shards:
                worker.begin(shards.popleft())


def _serve(
    connection: Connection, parents: list[Connection], pid: int, owner: Process, sent: _Sent
) -> None:
    """Write shards until the parent closes its end or exits."""
    keep_inherited()
    _core.end_with_parent(pid)
    # Ctrl-C reaches every process of the terminal; let the parent handle it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for end in parents:
        end.close()
    with acting_for(owner):
        try:
            writer = _received(sent)
            while True:
                shard: Shard = connection.recv()
                writer.write(shard, lambda *done: connection.send(done), connection.poll)
                connection.send(None)
        except (EOFError, StoppedError, BrokenPipeError, ConnectionResetError):
            return  # the parent has closed its end
        except BaseException as e:  # raised again by the parent
            connection.send(_portable(e))


def _portable(error: BaseException) -> BaseException:
    """Return the error, or a similar one if it cannot be pickled."""
    error.__cause__ = error.__context__ = None
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:  # its class may raise anything when it is pickled
        return RecmapError(f"{type(error).__name__}: {error}")
    return error
