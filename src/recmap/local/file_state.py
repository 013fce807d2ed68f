"""What tells a file on disk from another in its place, and which folders are opened as a whole."""

from __future__ import annotations

import os
import platform
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

# A folder with one of these files is a Zarr store, of version 3 or 2.
ZARR_FILES = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")
# A folder with this file is a version of a TFDS dataset.
TFDS_FILE = "features.json"
# Versions before 4.0 of TFDS wrote only this one, which other libraries write, too.
TFDS_INFO = "dataset_info.json"
# A folder with this file is a LeRobot dataset.
LEROBOT_FILE = "meta/info.json"
# Suffixes of files next to the data that are not data.
DESCRIPTION, TEXT_INDEX = ".recmap.json", ".idx"
# A folder with one of these files is opened as a whole.
STORE_FILES = (*ZARR_FILES, TFDS_FILE, LEROBOT_FILE)
# The tokens of Megatron-LM lie beside the index that says where they are.
_TOKENS, _TOKEN_INDEX = ".bin", ".idx"
_MOSAIC_INDEX, _MOSAIC_SHARD = "index.json", ".mds"
_BOOT = "/proc/sys/kernel/random/boot_id"


def is_indexed(name: str, names: Collection[str]) -> bool:
    """Return whether a file is read through an index of Megatron-LM or Mosaic beside it."""
    if name.endswith(_TOKENS):
        return name.removesuffix(_TOKENS) + _TOKEN_INDEX in names
    folder, slash, base = name.rpartition("/")
    return _MOSAIC_SHARD in base and f"{folder}{slash}{_MOSAIC_INDEX}" in names


def mosaic_index(names: Collection[str]) -> str | None:
    """Return the name of the index in a folder of shards of Mosaic Streaming, if it is one."""
    shards = any(_MOSAIC_SHARD in name for name in names)
    return _MOSAIC_INDEX if shards and _MOSAIC_INDEX in names else None


class FileState(NamedTuple):
    """What tells a file from another in its place, and from itself after a change.

    ``content`` is the name, size and time of the file, or of the files that describe a folder,
    to which others may be added. The time is None where changes are allowed. On another
    ``machine``, the same file may have another device and inode, and a time in whole seconds.
    """

    machine: str
    device: int
    inode: int
    content: tuple[tuple[str, int, int | None], ...]

    @classmethod
    def of(cls, path: str, status: os.stat_result | None = None) -> FileState:
        """Return the state of a file or folder now; raise an OSError if there is none."""
        status = os.stat(path) if status is None else status
        if stat.S_ISDIR(status.st_mode):
            content = tuple(_contents(path))
        else:
            content = (("", status.st_size, status.st_mtime_ns),)
        return cls(_machine(), status.st_dev, status.st_ino, content)

    def without_time(self) -> FileState:
        """Return the state of a file that may be written to, such as a memory map."""
        return self._replace(content=tuple((name, size, None) for name, size, _ in self.content))

    def in_seconds(self) -> FileState:
        """Return the state as a file system without fractions of a second has it."""
        content = tuple((name, size, time and time // 10**9) for name, size, time in self.content)
        return self._replace(content=content)

    def difference(self, now: FileState) -> str:
        """Say in words how a file that has the state ``now`` differs; "" if it does not."""
        if now == self:
            return ""
        here = self.machine == now.machine
        if here and (self.device, self.inode) != (now.device, now.inode):
            return "was replaced by another file"
        timeless = any(time is None for _, _, time in self.content)
        before, after = self, now.without_time() if timeless else now
        if not here:
            before, after = before.in_seconds(), after.in_seconds()
        if set(before.content) <= set(after.content):
            return ""
        if not here:
            return "is another file on this machine, or was changed"
        return "was changed"


def _contents(folder: str) -> Iterator[tuple[str, int, int]]:
    """Yield the state of each file that says whether a folder still holds the same.

    Of a TFDS folder those are its shards: what describes them is written again when a split is
    added. Of a Zarr store it is the metadata: there are too many chunks.
    """
    if os.path.exists(os.path.join(folder, LEROBOT_FILE)):
        yield from _states(folder, "", [LEROBOT_FILE])
        return
    if not any(os.path.exists(os.path.join(folder, name)) for name in (TFDS_FILE, TFDS_INFO)):
        yield from _metadata(folder, "")
        return
    for name in sorted(os.listdir(folder)):
        if name[0] not in "._" and not name.endswith(".json"):
            yield from _states(folder, "", [name])


def _metadata(folder: str, inside: str) -> Iterator[tuple[str, int, int]]:
    found = list(_states(folder, inside, ZARR_FILES))
    yield from found
    # What is in an array of version 2 are its chunks, which are many.
    if not found or any(name.endswith(".zarray") for name, _, _ in found):
        return
    with os.scandir(folder) as entries:
        below = sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
    for name in below:
        yield from _metadata(f"{folder}/{name}", f"{inside}{name}/")


def _states(folder: str, inside: str, names: Iterable[str]) -> Iterator[tuple[str, int, int]]:
    for name in names:
        try:
            status = os.stat(f"{folder}/{name}")
        except (FileNotFoundError, NotADirectoryError):
            continue
        yield f"{inside}{name}", status.st_size, status.st_mtime_ns


@cache
def _machine() -> str:
    """Return what tells this machine, since it was started, from others."""
    try:
        with open(_BOOT, encoding="ascii") as boot:
            return boot.read().strip()
    except OSError:
        return platform.node()


def is_store_of(present: Collection[str], names: Sequence[str] = STORE_FILES) -> bool:
    """Return whether a folder with the files ``present`` is opened as a whole.

    It is if it has a file of one of these ``names``, or was written by an old version of TFDS.
    """
    if any(name in present for name in names):
        return True
    old = TFDS_FILE in names and TFDS_INFO in present
    return old and any(".tfrecord-" in name for name in present)
