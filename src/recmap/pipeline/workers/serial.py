"""A pool without workers: the caller does the work when it asks for a result."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from recmap.errors import RecmapError
from recmap.pipeline.workers.errors import map_error
from recmap.pipeline.workers.pool import Pool, Request, Result, Work, closed_error

__all__ = ["SerialPool"]


class SerialPool(Pool):
    """Does the work in the caller's thread, and never ahead of time."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._busy = 0.0
        self._closed = False

    def run(self, requests: Iterable[Request], ahead: int) -> Iterator[tuple[Request, Result]]:
        del ahead
        # A generator would keep the last request and what was read for it.
        return map(self._answer, requests)

    def _answer(self, request: Request) -> tuple[Request, Result]:
        if self._closed:
            raise closed_error()
        begin = time.perf_counter()
        try:
            return request, self._work(request)
        except RecmapError:
            self.close()
            raise
        except Exception as e:
            self.close()
            raise map_error(e) from e
        finally:
            self._busy += time.perf_counter() - begin

    def close(self) -> None:
        self._closed = True

    def busy(self) -> list[float]:
        return [self._busy]
