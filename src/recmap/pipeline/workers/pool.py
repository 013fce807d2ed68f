"""What every pool of workers is: requests in, batches out, in the same order."""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError
from recmap.model.schema import Batch

__all__ = ["Answer", "OrderedPool", "Pool", "Request", "Result", "UnpicklableError", "Work"]


class UnpicklableError(OptionError):
    """Work that cannot be sent to a process that is not forked."""


@dataclass(frozen=True)
class Request:
    """A piece of work: the rows asked for, and their columns if they were read already."""

    number: int
    epoch: int
    positions: npt.NDArray[np.int64]
    batch: Batch | None = None


@dataclass(frozen=True)
class Result:
    """What was made of a request.

    ``batches`` is empty if they were too much to be made together, and have to be made one
    by one; whoever uses a batch takes it out. ``kept`` tells which rows were kept, None if
    all were; ``reached`` which rows came to each ``take`` or ``skip`` between transforms;
    ``seconds`` what each stage took.
    """

    batches: list[Batch]
    kept: npt.NDArray[np.int64] | None = None
    reached: Sequence[npt.NDArray[np.int64]] = ()
    seconds: Sequence[float] = ()


Work: TypeAlias = Callable[[Request], Result]


class Pool(Protocol):
    """Workers that share the requests of a run."""

    def run(self, requests: Iterable[Request], ahead: int) -> Iterator[tuple[Request, Result]]:
        """The results in the order of the requests.

        At most ``ahead`` requests are taken beyond the one handed out, in the
        caller's thread. After an error the pool is closed.
        """

    def close(self) -> None:
        """Ends the workers, at once; may be called again."""

    def busy(self) -> list[float]:
        """Seconds each worker has been working so far, waiting not included."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# The result is the only item of a list: whoever takes it out is the only one to hold it,
# also if the thread that made it has not come to its next line yet.
Answer: TypeAlias = "Future[list[Result]]"
_Piece: TypeAlias = tuple[Request, Answer]


class OrderedPool(Pool, ABC):
    """A pool whose workers may finish in any order."""

    def __init__(self, end: Callable[..., None], *parts: Any) -> None:
        """``end(*parts)`` is called once: by close(), when the pool is garbage, or at exit."""
        self._process = os.getpid()
        self._ending = weakref.finalize(self, end, *parts)

    @abstractmethod
    def _submit(self, request: Request) -> Answer:
        """Queues a request."""

    @abstractmethod
    def _wait(self, future: Answer) -> None:
        """Returns when a result is there; raises if the pool is closed before."""

    def run(self, requests: Iterable[Request], ahead: int) -> Iterator[tuple[Request, Result]]:
        intake = _Intake(requests)
        pieces: deque[_Piece] = deque()
        try:
            while self._fill(pieces, intake, ahead):
                # No name is given to a result here: it would keep the batch until
                # the next one is asked for.
                yield self._finish(pieces.popleft())
            intake.end()
        except GeneratorExit:
            raise
        except BaseException:
            self.close()
            raise
        finally:
            for _, future in pieces:
                future.cancel()

    def close(self) -> None:
        self._ending()

    def _fill(self, pieces: deque[_Piece], intake: _Intake, ahead: int) -> bool:
        self._check()
        while len(pieces) <= ahead and (request := intake.take()) is not None:
            pieces.append((request, self._submit(request)))
        return bool(pieces)

    def _finish(self, piece: _Piece) -> tuple[Request, Result]:
        request, future = piece
        # Another thread may have closed the pool, or do so now.
        self._check()
        try:
            self._wait(future)
            return request, future.result().pop()
        except CancelledError:
            self._check()
            raise

    def _check(self) -> None:
        if not self._ending.alive:
            raise OptionError("the pool of workers is closed; open another one")
        if os.getpid() != self._process:
            raise OptionError(
                "the pool of workers was opened before this process was forked; open another one"
            )


class _Intake:
    """Requests one by one. An error of their source waits until the results of the
    requests before it are handed out: the workers' number does not change what comes.
    """

    def __init__(self, requests: Iterable[Request]) -> None:
        self._requests = iter(requests)
        self._ended = False
        self._error: Exception | None = None

    def take(self) -> Request | None:
        if self._ended:
            return None
        try:
            return next(self._requests)
        except StopIteration:
            self._ended = True
        except Exception as e:
            self._ended, self._error = True, e
        return None

    def end(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
