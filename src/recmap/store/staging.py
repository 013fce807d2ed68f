"""Local space for files on their way to a store.

Some formats can be written only to a file that can be read and changed. Such a file is made in
the folder for temporary files (``TMPDIR``), and sent when it is complete.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, wait

from recmap.errors import OutputError, VerificationError
from recmap.local.atomic_write import writing
from recmap.local.location import Location
from recmap.local.output import DiskOutput, Output
from recmap.local.temporary import (
    acting_for,
    process_of,
    remove,
    runs,
    temporary_path,
    this_process,
)
from recmap.machine.threads import Threads
from recmap.model.arguments import size_text

_NAME = "recmap-staging"
# Files up to this size are sent several at a time.
_SMALL = 1 << 20
_REQUESTS = 8


def make_staging_folder() -> str:
    """Create a folder for one output, and remove those that killed processes left."""
    place = tempfile.gettempdir()
    for name in os.listdir(place):
        process = process_of(name) if name.startswith(f".{_NAME}.") else None
        if process in (None, this_process()) or process.machine != this_process().machine:
            continue
        if runs(process) is False:
            # Another thread may do the same, and that of another user is not ours to remove.
            shutil.rmtree(os.path.join(place, name), ignore_errors=True)
    # It belongs to this process even if that acts for another, which may run elsewhere.
    with acting_for(this_process()):
        folder = temporary_path(os.path.join(place, _NAME))
    os.mkdir(folder, mode=0o700)
    return folder


class StagedObject(DiskOutput):
    """A file, or a folder such as a Zarr store, that is made in local space and sent on commit."""

    def __init__(self, target: Location) -> None:
        with writing(target):
            self.object, self._folder = target, make_staging_folder()
        super().__init__(target, durable=False, path=os.path.join(self._folder, target.name))

    def state(self) -> None:
        return None

    def appear(self) -> None:
        self.commit_all([self])

    def commit_all(self, outputs: Sequence[Output]) -> None:
        """Send the data first, and then what describes it, which must not be older."""
        staged = [output for output in outputs if isinstance(output, StagedObject)]
        data = {output.object: output.path for output in staged}
        with writing(self.target):
            send_files(data)
            _check_sizes(data)
            send_files({path: file for output in staged for path, file in output.described()})
        for output in staged:
            output.discard()

    def described(self) -> Iterator[tuple[Location, str]]:
        """Write what describes the file next to it, and yield where to send it."""
        for _, save in self._companions:
            save(self.path, self.path)
        for name in os.listdir(self._folder):
            if name != self.object.name:
                yield self.object.sibling(name), os.path.join(self._folder, name)

    def discard(self) -> None:
        try:
            super().discard()
        finally:
            remove(self._folder)

    def abandon(self) -> None:
        remove(self._folder)


def _check_sizes(files: Mapping[Location, str]) -> None:
    """Raise if an object does not have the size of the file that was sent."""
    sent = {path: os.path.getsize(file) for path, file in files.items() if os.path.isfile(file)}
    objects = [path.anew() for path in sent]
    for path, found in zip(objects, objects[0].stats(objects) if sent else (), strict=True):
        size = 0 if found is None else found.size
        if sent[path] != size:
            raise VerificationError(f"{path}: {sent[path]:,} bytes were sent, but it has {size:,}")


def check_space(needed: int, output: str) -> None:
    """Raise if there is less local space than ``needed`` bytes for files of an output."""
    place = tempfile.gettempdir()
    free = shutil.disk_usage(place).free
    if needed > free:
        raise OutputError(
            f"{output}: files of this format are made on disk before they are sent, and need about "
            f"{size_text(needed)} in {place}, where {size_text(free)} are free; set TMPDIR to a "
            "folder with more room, or write smaller files (shards), fewer at a time (workers)"
        )


def files_below(folder: str) -> Iterator[str]:
    """Yield the names of all files in a folder and those inside it, relative to it."""
    for inner, _, names in os.walk(folder):
        for name in sorted(names):
            yield os.path.relpath(os.path.join(inner, name), folder)


def send_files(files: Mapping[Location, str]) -> None:
    """Send files, each to its object: several small ones at a time, or the parts of a large one.

    A folder, such as a Zarr store, is sent by itself, too.
    """
    sizes = {path: os.path.getsize(file) for path, file in files.items()}
    large = {p: file for p, file in files.items() if sizes[p] > _SMALL or os.path.isdir(file)}
    with Threads(_REQUESTS, "recmap-send") as pool:
        small = [(path, file) for path, file in files.items() if path not in large]
        futures = [pool.submit(path.send, file) for path, file in small]
        try:
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
            for path, file in large.items():
                path.send(file)
        except BaseException:
            for future in futures:
                future.cancel()
            raise
