"""Delete leftovers next to an output: temporary files of dead processes, and old outputs.

recmap deletes only files that it wrote itself. For any other file it raises an error that names
the file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from recmap.errors import OutputExistsError
from recmap.files.array_sidecar import description_path, is_description, remove_description
from recmap.files.output_file import refuse_special
from recmap.files.temporary import (
    Process,
    names_of,
    process_of,
    remove,
    runs,
    short_name,
    this_process,
)
from recmap.formats.zarr.attributes import not_ours, refuse_foreign
from recmap.tfrecord.sidecar import is_written, remove_sidecar

__all__ = [
    "PreviousOutput",
    "clear_temporary",
    "file_state",
    "refuse_foreign_output",
    "remove_output",
]


def file_state(path: str) -> list[int]:
    """Return the size and modification time of a file, to detect changes."""
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns]


class PreviousOutput:
    """The files that an earlier conversion wrote to the same place.

    ``states`` maps their names to the state each file had when it was finished.
    """

    def __init__(self, folder: str, states: Mapping[str, list[int]]) -> None:
        self._folder, self._states = folder, dict(states)

    @property
    def paths(self) -> list[str]:
        """The paths of the files, which may no longer exist."""
        return [os.path.join(self._folder, name) for name in self._states]

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The files, in the form a manifest lists them."""
        return [{"file": name, "state": state} for name, state in self._states.items()]

    def owns(self, path: str) -> bool:
        """Return whether the file at a path is still the one that recmap wrote."""
        if os.path.islink(path) or not os.path.exists(path):
            return False
        if os.path.isdir(path):
            return not not_ours(path)
        # The name does not count: the file may have been renamed since.
        return file_state(path) in self._states.values() or is_written(path)

    def refuse_foreign(self, paths: Sequence[str]) -> None:
        """Raise unless recmap wrote all of these files, which would have to be deleted."""
        for path in paths:
            if not self.owns(path):
                raise OutputExistsError(
                    f"{path} would be read together with the new files, but is not deleted: recmap "
                    "did not write it, or it has changed since. Remove it, or write elsewhere"
                )


def clear_temporary(paths: Sequence[str], owner: Process | None = None) -> None:
    """Remove the temporary files of these outputs; raise if a running process owns one.

    ``owner`` is the process to remove them for; by default, this one.
    """
    owner = owner or this_process()
    names: dict[str, set[str]] = {}
    for path in paths:
        folder, name = os.path.split(path)
        names.setdefault(folder, set()).update(map(short_name, (name, description_path(name))))
    for folder, wanted in names.items():
        if not os.path.isdir(folder or "."):
            continue
        # Remove the run lock first: a conversion that is taken over must see that it lost the
        # lock before it misses its files.
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


def remove_output(path: str) -> None:
    """Remove a file or a Zarr store that recmap wrote, with its sidecar and description."""
    if os.path.isdir(path) and not os.path.islink(path) and not_ours(path):
        return
    remove(path)
    remove_description(path)
    remove_sidecar(path)


def refuse_foreign_output(path: str, format: str) -> None:
    """Raise if there is something at an output path that recmap must not overwrite."""
    if os.path.isdir(path):
        if format != "zarr":
            raise OutputExistsError(f"{path} is a folder; give another name for the file")
        refuse_foreign(path)
    refuse_special(path)
    description = description_path(path)
    if os.path.lexists(description) and not is_description(description):
        raise OutputExistsError(
            f"{description} would be replaced, but is not a description that recmap wrote; move it "
            "away, or write elsewhere"
        )


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
