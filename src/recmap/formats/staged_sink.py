"""A sink for objects of a format that can be written only to a local file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from recmap.errors import VerificationError
from recmap.files.location import Location
from recmap.files.staging import make_staging_folder, send_files
from recmap.files.temporary import remove
from recmap.model.sink import Sink


class StagedSink(Sink):
    """Writes a file, or a folder such as a Zarr store, in local space, and sends it on commit.

    ``make`` creates the sink for the local path.
    """

    def __init__(self, path: Location, make: Callable[[str], Sink]) -> None:
        self._path = path
        self._folder = make_staging_folder()
        self._local = os.path.join(self._folder, path.name)
        self._sink: Sink | None = None
        try:
            self._sink = make(self._local)
        except BaseException:
            self.abort()
            raise

    def write(self, batch: Mapping[str, Any]) -> None:
        assert self._sink is not None
        self._sink.write(batch)

    def finish(self) -> str:
        assert self._sink is not None
        return self._sink.finish()

    def commit(self) -> None:
        """Send the data first, and then what describes it, which must not be older."""
        assert self._sink is not None
        self._sink.commit()
        self._path.send(self._local)
        if os.path.isfile(self._local):
            self._check_size()
        beside = [name for name in os.listdir(self._folder) if name != self._path.name]
        send_files({self._path.sibling(n): os.path.join(self._folder, n) for n in beside})
        remove(self._folder)

    def _check_size(self) -> None:
        sent, found = os.path.getsize(self._local), self._path.anew().stat().size
        if sent != found:
            raise VerificationError(f"{self._path}: {sent:,} bytes were sent, but it has {found:,}")

    def abort(self) -> None:
        """Remove the local file; an object that was sent stays."""
        try:
            if self._sink is not None:
                self._sink.abort()
        finally:
            remove(self._folder)
