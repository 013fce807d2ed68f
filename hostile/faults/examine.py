"""Disturb every call of an operation once with each fault, and check what must hold afterwards.

- A reader sees the old output or the new one whole, or an error that says it is unfinished.
- An error is one of recmap's and names a file. The process can go on after it.
- The same command, run again, leaves the same bytes as if nothing had happened, and nothing else:
  no temporary file, lock, list or part of an upload. So does a different command.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hostile.faults.disturbed import Fault, Outcome, run_steps
from hostile.faults.operations import Operation, Site
from hostile.faults.store import GIVEN_UP, READS, REPEATED, Store

__all__ = ["Examination", "Point", "Result"]

_KILLS = ("killed before", "killed after")
# Calls that can do half of their work, and calls that a full disk refuses.
_WRITES = ("write", "writev", "pwrite", "pwritev", "sendfile", "copy")
_NEED_ROOM = (*_WRITES, "create", "allocate", "mkdir", "link")
# How errors say that an output is, or may be, unfinished: the latter of half a Zarr store, and of a
# raw file whose description has been replaced already.
_UNFINISHED = re.compile("is not finished|wait, or run it again|if that was killed, run it again")


@dataclass(frozen=True)
class Point:
    """A fault at a call of the disk, or at a request to a store."""

    number: int
    call: str
    fault: str
    request: bool = False

    def __str__(self) -> str:
        return f"{'request' if self.request else 'call'} {self.number} ({self.call}): {self.fault}"


@dataclass
class Result:
    """What the examination of an operation counted and found."""

    kind: str
    calls: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    #: All faults there are, and those that were tried.
    faults: int = 0
    tried: int = 0
    #: Where something did not hold: something known, or something else.
    known: set[Point] = field(default_factory=set)
    failed: set[Point] = field(default_factory=set)


@dataclass(frozen=True)
class _State:
    """All files, with the time of each, and all objects; None is a folder."""

    files: dict[str, tuple[bytes | None, int]]
    objects: dict[str, bytes]

    def content(self) -> dict[str, Any]:
        """Return what must be the same after every run: times and the disk cache may differ."""
        files = {f: data for f, (data, _) in self.files.items() if not f.startswith("cache")}
        return {name: _timeless(name, data) for name, data in {**files, **self.objects}.items()}


def _timeless(name: str, data: bytes | None) -> Any:
    if data is None or not name.endswith("manifest.json"):
        return data
    manifest = json.loads(data)
    # The size of each file stays, its time goes.
    manifest["states"] = [state[0] for state in manifest.get("states", ())]
    return manifest


class Examination:
    """The examination of one operation, in an empty folder, and in a bucket if it needs one."""

    def __init__(self, operation: Operation, folder: str, store: Store | None) -> None:
        self._operation, self._store = operation, store
        self._folder = os.path.join(folder, "site")
        self._log = os.path.join(folder, "calls.txt")
        self._prepare()
        faults = len(list(self.points()))
        self.result = Result(operation.kind, self.calls, self.requests, faults)

    def _site(self, retries: int = 3) -> Site:
        if self._store is None:
            return Site(self._folder)
        return Site(self._folder, self._store.url, self._store.storage(retries))

    # What happens undisturbed

    def _prepare(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        site = self._site()
        site.prepare()
        os.mkdir(os.path.join(self._folder, "tmp"))
        if self._store is not None:
            self._store.restore({})
        self._must(self._run(["before"]))
        self._begin = self._state()
        self._old = self._run(["read"])[0].value
        self._restore()
        self._must(self._run(["changed"]))
        self._changed = self._state().content()
        self._restore()
        self._count()
        self._done = self._state().content()
        self._new = self._must(self._run(["read"]))[0].value
        if self._operation.resumes:
            self._kill_halfway()
            self._count()

    def _count(self) -> None:
        self._must(self._run(["run"], Fault()))
        self.calls, self.requests = self._calls(), self._requests()
        if self._operation.requests_only:
            self.calls = []

    def _kill_halfway(self) -> None:
        """Begin with what a run leaves that is killed in the middle."""
        self._restore()
        if self._store is not None:
            self._run(["run"], None, len(self.requests) // 2, "killed before")
        else:
            self._run(["run"], Fault(len(self.calls) // 2, "killed before"))
        self._begin = self._state()
        self._restore()

    @staticmethod
    def _must(outcomes: list[Outcome]) -> list[Outcome]:
        if not outcomes:
            raise RuntimeError("undisturbed, the process ended")
        for outcome in outcomes:
            if outcome.kind:
                raise RuntimeError(f"undisturbed, {outcome.step} failed:\n{outcome.trace}")
        return outcomes

    # What happens at each point

    def points(self) -> Iterator[Point]:
        """Yield all points."""
        for number, call in enumerate(self.calls, 1):
            kind = call.split()[0]
            faults = ["EIO"]
            # A process killed at fsync leaves what the call before that left.
            faults += _KILLS if kind != "fsync" else []
            faults += ["ENOSPC"] if kind in _NEED_ROOM else []
            faults += ["killed within", "short"] if kind in _WRITES else []
            yield from (Point(number, call, fault) for fault in faults)
        for number, request in enumerate(self.requests, 1):
            # A process killed at a request that only reads leaves what the one before that left.
            reads = request.split()[0] in READS
            faults = ["dropped", *GIVEN_UP] if reads else [*REPEATED, *GIVEN_UP, *_KILLS]
            yield from (Point(number, request, fault, request=True) for fault in faults)

    def examine(self, point: Point) -> list[str]:
        """Make a fault happen, and return what does not hold afterwards."""
        self.result.tried += 1
        self._restore()
        problems = self._killed(point) if "killed" in point.fault else self._failed(point)
        return [_nameless(problem) for problem in dict.fromkeys(problems)]

    def _killed(self, point: Point) -> Iterator[str]:
        outcomes = self._disturb(["run"], point)
        if outcomes and outcomes[0].kind:
            yield _shown("instead of being killed", outcomes[0])
        # The state before a call is that after the previous one, so each is met by both commands.
        then = "changed" if point.fault == "killed before" else "run"
        read, again = self._run(["read", then])
        yield from self._check_read(read)
        yield from self._check_again(again, self._changed if then == "changed" else self._done)

    def _failed(self, point: Point) -> Iterator[str]:
        run, *others = self._disturb(["run", "read", "run"], point)
        if len(others) < 2:
            yield _shown("the process ended", others[0] if others else run)
            return
        read, again = others
        if run.kind:
            if point.fault in (*REPEATED, "short"):
                yield _shown("not survived", run)
            elif not run.ours:
                yield _shown("a foreign error", run)
            elif not self._names_file(run.error):
                yield _shown("no file is named", run)
            if run.left_open:
                yield f"left open: {', '.join(run.left_open)}"
        elif read.value != self._new:
            yield _shown(f"it did not fail, but a reader sees {read.value}, not {self._new}", read)
        yield from self._check_read(read)
        yield from self._check_again(again, self._done)

    def _names_file(self, error: str) -> bool:
        return self._folder in error or (self._store is not None and self._store.url in error)

    def _check_read(self, read: Outcome) -> Iterator[str]:
        if read.kind:
            honest = self._old is None or _UNFINISHED.search(read.error)
            if not read.ours or not honest:
                yield _shown("a reader meets", read)
        elif read.value not in (self._old, self._new):
            yield f"a reader sees {read.value}: neither old ({self._old}) nor new ({self._new})"

    def _check_again(self, again: Outcome, wanted: dict[str, Any]) -> Iterator[str]:
        if again.kind and again.kind != "OutputExistsError":
            yield _shown(f"afterwards, {again.step} fails", again)
        found = self._state().content()
        shown = {
            "left over": found.keys() - wanted.keys(),
            "missing": wanted.keys() - found.keys(),
            "different": {n for n in found.keys() & wanted.keys() if found[n] != wanted[n]},
        }
        problems = [f"{kind}: {', '.join(sorted(names))}" for kind, names in shown.items() if names]
        if problems and again.kind:
            problems.append(_shown("", again))
        if problems:
            yield f"after {again.step}: {'; '.join(problems)}"
        if self._store is not None and (uploads := self._store.uploads()):
            yield f"after {again.step}, parts of uploads: {', '.join(uploads)}"

    # Processes and states

    def _disturb(self, steps: list[str], point: Point) -> list[Outcome]:
        if point.request:
            retries = 0 if point.fault in GIVEN_UP else 3
            return self._run(steps, None, point.number, point.fault, retries)
        return self._run(steps, Fault(point.number, point.fault))

    def _run(
        self,
        steps: list[str],
        fault: Fault | None = None,
        request: int = 0,
        kind: str = "",
        retries: int = 3,
    ) -> list[Outcome]:
        Path(self._log).unlink(missing_ok=True)
        name, site = self._operation.name, self._site(retries)
        if self._store is None:
            return run_steps(name, site, steps, fault, self._log)
        self._store.disturb(request, kind)
        return run_steps(name, site, steps, fault, self._log, self._store.started, self._store.calm)

    def _calls(self) -> list[str]:
        log = Path(self._log)
        return [_nameless(line) for line in log.read_text().splitlines()] if log.exists() else []

    def _requests(self) -> list[str]:
        return [] if self._store is None else self._store.requests()

    def _state(self) -> _State:
        files: dict[str, tuple[bytes | None, int]] = {}
        for path in Path(self._folder).rglob("*"):
            name = str(path.relative_to(self._folder))
            data = None if path.is_dir() else path.read_bytes()
            files[name] = data, path.stat().st_mtime_ns
        return _State(files, {} if self._store is None else self._store.objects())

    def _restore(self) -> None:
        shutil.rmtree(self._folder)
        os.mkdir(self._folder)
        for name, (data, time) in sorted(self._begin.files.items()):
            path = os.path.join(self._folder, name)
            if data is None:
                os.mkdir(path)
            else:
                Path(path).write_bytes(data)
                os.utime(path, ns=(time, time))
        if self._store is not None:
            self._store.restore(self._begin.objects)


def _nameless(text: str) -> str:
    """Shorten what differs from run to run in the names of temporary files and lists."""
    text = re.sub(r"\w+-\d+-[0-9a-f]{8}-[0-9a-f]{8}\.tmp", "*.tmp", text)
    return re.sub(r"\bdone-[0-9a-f]{12}", "done-*", text)


def _shown(what: str, outcome: Outcome) -> str:
    return f"{what}: {outcome.kind}: {outcome.error}".removeprefix(": ")
