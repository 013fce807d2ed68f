"""Outputs in a folder on disk."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from recmap.conversion.place import Place, State
from recmap.conversion.plan import stem_of
from recmap.conversion.run_lock import RunLock
from recmap.errors import OutputExistsError
from recmap.files.array_sidecar import description_path, is_description, remove_description
from recmap.files.local_path import located
from recmap.files.output_file import refuse_special
from recmap.files.temporary import (
    Process,
    names_of,
    process_of,
    remove,
    remove_leftovers,
    runs,
    short_name,
    temporary_path,
    this_process,
)
from recmap.formats.zarr.attributes import not_ours, refuse_foreign
from recmap.tfrecord.sidecar import is_written, remove_sidecar

__all__ = ["LocalPlace"]

# What describes a TFDS folder.
_METADATA = re.compile(r"dataset_info\.json|features\.json|.+\.labels\.txt")


class LocalPlace(Place):
    """A folder. recmap deletes only files that it wrote itself."""

    def states(self, paths: Sequence[str]) -> list[State | None]:
        return [_state(path) if os.path.exists(path) else None for path in paths]

    def sizes(self, paths: Sequence[str]) -> list[int]:
        return [located(path).size_below() for path in paths]

    def real_path(self, path: str) -> str:
        return os.path.realpath(path)

    def read(self, path: str, most: int) -> bytes | None:
        try:
            with open(path, "rb") as file:
                # file.read(most) would allocate that much.
                size = os.fstat(file.fileno()).st_size
                return file.read(size) if size <= most else None
        except (FileNotFoundError, NotADirectoryError):
            return None

    def save(self, path: str, text: str) -> None:
        located(path).write(text.encode())

    def append(self, path: str, line: str) -> None:
        with open(path, "a", encoding="utf-8") as file:
            file.write(line + "\n")

    def names(self, path: str) -> list[str]:
        folder = os.path.dirname(path) or "."
        return os.listdir(folder) if os.path.isdir(folder) else []

    def owns(self, path: str, states: Sequence[State]) -> bool:
        if os.path.islink(path) or not os.path.exists(path):
            return False
        if os.path.isdir(path):
            return not not_ours(path)
        # The name does not count: the file may have been renamed since.
        return _state(path) in states or is_written(path)

    def remove_output(self, path: str) -> None:
        if os.path.isdir(path) and not os.path.islink(path):
            if not not_ours(path):
                # In one step: half a store would not be known as ours.
                aside = temporary_path(path, ".gone")
                os.rename(path, aside)
                remove(aside)
            return
        # The file last: while it is there, the next run finds what belongs to it.
        remove_description(path)
        remove_sidecar(path)
        remove(path)

    def refuse_foreign_output(self, path: str, format: str, states: Sequence[State]) -> None:
        del states
        if os.path.isdir(path):
            if format != "zarr":
                raise OutputExistsError(f"{path} is a folder; give another name for the file")
            refuse_foreign(path)
        refuse_special(path)
        description = description_path(path)
        if os.path.lexists(description) and not is_description(description):
            raise OutputExistsError(
                f"{description} would be replaced, but is not a description that recmap wrote; "
                "move it away, or write elsewhere"
            )

    def run_lock(self, manifest: str) -> RunLock:
        return RunLock(temporary_path(manifest, ".running"))

    def check_free(self, paths: Sequence[str]) -> None:
        self.clear(paths, None, None)

    def clear(self, paths: Sequence[str], owner: Process | None, lock: RunLock | None) -> None:
        """Remove the temporary files of these outputs; raise if a running process owns one."""
        if lock is not None:
            return  # done before it was taken
        owner = owner or this_process()
        names: dict[str, set[str]] = {}
        for path in paths:
            folder, name = os.path.split(path)
            names.setdefault(folder, set()).update(map(short_name, (name, description_path(name))))
        for folder, wanted in names.items():
            if os.path.isdir(folder or "."):
                _clear_folder(folder, wanted, owner)
                # Others may write such files at the same time: shards of another number or format,
                # metadata.
                stems = set(map(stem_of, wanted))
                remove_leftovers(
                    folder,
                    lambda name: stem_of(name) in stems or _METADATA.fullmatch(name),  # noqa: B023
                )


def _clear_folder(folder: str, wanted: set[str], owner: Process) -> None:
    # Remove the run lock first: a conversion that is taken over must see that it lost the lock
    # before it misses its files.
    for entry in sorted(os.listdir(folder or "."), key=lambda entry: ".running." not in entry):
        process = process_of(entry)
        if process is None or wanted.isdisjoint(names_of(entry)):
            continue
        path = os.path.join(folder, entry)
        # A file with the owner's process number comes from a failed call, or from an earlier
        # process with the same number.
        same_number = (process.machine, process.number) == (owner.machine, owner.number)
        running = False if same_number else _is_running(process)
        if running is not False:
            raise _in_use(path, process.number, certain=running is True)
        remove(path)


def _state(path: str) -> State:
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns]


def _is_running(process: Process) -> bool | None:
    if process.machine != this_process().machine:
        # We cannot check another machine, and a restarted container has a new name. If that
        # process is still running, it finds its run lock gone and gives up.
        return False
    return runs(process)


def _in_use(path: str, number: int, certain: bool) -> OutputExistsError:
    if certain:
        return OutputExistsError(
            f"{path} is being written by process {number}; wait for it, or stop it"
        )
    return OutputExistsError(
        f"{path} belongs to process {number}, which may still be writing it: a process with that "
        "number is running, but recmap cannot tell when it started. If it is a conversion to this "
        f"place, wait for it; otherwise remove {path} and try again"
    )
