"""The run lock of a conversion to an object store.

It is an object that exists while a conversion runs. It is made only if there is none, and
renewed every now and then, so that the lock of a killed process expires. All changes name the
version that they replace, so that of two conversions exactly one gets it.
"""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from recmap.errors import OutputError, OutputExistsError, StoreError
from recmap.local.location import Version
from recmap.local.run_lock import RunLock
from recmap.local.temporary import Process, runs, this_process
from recmap.machine.threads import start_thread
from recmap.store.object_address import ObjectAddress
from recmap.store.object_writer import (
    delete_object,
    put_if,
    read_object,
)
from recmap.warn import warn

# Seconds between renewals, and after which a lock that was not renewed counts for nothing.
_RENEWED_EVERY = 30.0
_EXPIRES = 300.0
# Seconds for which an answer about the lock is trusted.
_TRUSTED = 1.0
_ATTEMPTS = 5


class StoreLock(RunLock):
    """An object that marks a running conversion; ``output`` is what it writes."""

    def __init__(self, path: ObjectAddress, output: str, run: str | None = None) -> None:
        super().__init__(path)
        self._object, self._output = path, output
        self._run = run or uuid4().hex
        self._begun = datetime.now(UTC)
        self._version: Version | None = None
        self._renewed = 0.0
        self._stop = threading.Event()
        self._mutex = threading.Lock()
        self._stopped = False
        # What the object said, and when.
        self._known: tuple[float, dict[str, Any]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return StoreLock, (self._object, self._output, self._run)

    def acquire(self) -> None:
        """Create the object, or take over one that has expired; raise if another run has it."""
        for _ in range(_ATTEMPTS):
            self._version = put_if(self._object, self._content(), None)
            if self._version is None:
                found = read_object(self._object)
                if found is None:
                    continue  # it was released just now
                self._refuse_if_alive(found[0])
                self._version = put_if(self._object, self._content(), found[1])
            if self._version is not None:
                break
        else:
            raise OutputExistsError(
                f"{self._output}: several conversions are trying to write there"
            )
        self._held, self._renewed = True, time.monotonic()
        self._known = None
        try:
            self.since = self._object.anew().info.modified
            if start_thread(self._renew, name="recmap-lock") is None:
                raise OutputError(f"{self._output}: cannot start a thread to renew the lock")
        except BaseException:
            self.release()
            raise

    def stop(self) -> None:
        """Tell tasks on other machines to stop. Others still cannot take the lock."""
        with self._mutex:
            self._stopped, self._known = True, None
            if self._held and self._version is not None:
                self._version = put_if(self._object, self._content(), self._version)
                self._lost = self._version is None

    def release(self) -> None:
        """Delete the object, unless another conversion has taken it over."""
        self._lost = self.lost
        self._stop.set()
        with self._mutex:
            self._held = False
            try:
                if self._version_of_ours() is not None:
                    delete_object(self._object)
            except StoreError as e:
                # The conversion has succeeded, or has failed with an error that tells more.
                warn(
                    f"the run lock was not deleted, and expires in {_EXPIRES / 60:.0f} minutes: "
                    f"{e}",
                )

    @property
    def exists(self) -> bool:
        """Whether the conversion is still running, here or on another machine."""
        said = self._said()
        return said.get("run") == self._run and not said.get("stopped")

    def _said(self) -> dict[str, Any]:
        now = time.monotonic()
        if self._known is None or now - self._known[0] > _TRUSTED:
            found = read_object(self._object)
            self._known = now, _parse(found[0]) if found is not None else {}
        return self._known[1]

    @property
    def lost(self) -> bool:
        """Whether another conversion has taken the lock over, or it could not be renewed."""
        if self._lost or not self._held:
            return self._lost
        try:
            return self._said().get("run") != self._run
        except StoreError:
            return False  # nobody knows, and the caller has an error of its own

    def _content(self) -> bytes:
        process = this_process()
        content = {
            "recmap": 1,
            "run": self._run,
            "machine": process.machine,
            "process": process.number,
            "started": process.started,
            "begun": self._begun.isoformat(),
            "renewed": datetime.now(UTC).isoformat(),
            **({"stopped": True} if self._stopped else {}),
        }
        return json.dumps(content, indent=1).encode()

    def _renew(self) -> None:
        while not self._stop.wait(_RENEWED_EVERY):
            with self._mutex:
                if not self._held or self._version is None:
                    return
                try:
                    made = put_if(self._object, self._content(), self._version)
                    if made is None:
                        made = self._version_of_ours()
                except StoreError:
                    # Try again soon, but not after others may think that we are dead.
                    self._lost = time.monotonic() - self._renewed > _EXPIRES - _RENEWED_EVERY
                else:
                    self._lost = made is None
                    self._version, self._renewed = made, time.monotonic()
                if self._lost:
                    return

    def _version_of_ours(self) -> Version | None:
        """Return the version of the lock if it is ours, though an answer may have been lost."""
        found = read_object(self._object)
        ours = found is not None and _parse(found[0]).get("run") == self._run
        return found[1] if found is not None and ours else None

    def _refuse_if_alive(self, content: bytes) -> None:
        holder = _parse(content)
        renewed = _moment(holder.get("renewed"))
        if holder.get("recmap") != 1 or renewed is None:
            raise OutputExistsError(
                f"{self.path} is not a run lock that recmap wrote; move it away, or write elsewhere"
            )
        process = Process(
            str(holder.get("machine")), _number(holder.get("process")), str(holder.get("started"))
        )
        here = process.machine == this_process().machine
        if here and (process == this_process() or runs(process) is False):
            return  # it was killed, or failed to release its lock
        now = datetime.now(UTC)
        # Clocks may differ, so ask both: that of the other machine and that of the store.
        modified = self._object.anew().info.modified
        age = (now - max(renewed, modified)).total_seconds()
        if age > _EXPIRES:
            return
        where = "" if here else f" on {process.machine.rpartition('_')[0] or process.machine}"
        raise OutputExistsError(
            f"{self._output} is being written by process {process.number}{where}, which last "
            f"renewed its lock {max(0, round(age))} seconds ago; wait for it, or stop it. If "
            f"it was killed, try again {round(_EXPIRES / 60)} minutes after that, or delete "
            f"{self.path}"
        )


def _parse(content: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _moment(text: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo is not None else None


def _number(value: Any) -> int:
    return value if type(value) is int else 0
