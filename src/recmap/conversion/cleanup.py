"""Removing what is no longer of use: old outputs, and what a killed process left."""

from __future__ import annotations

import os
from collections.abc import Sequence

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
from recmap.tfrecord.sidecar import remove_sidecar

__all__ = ["clear_temporary", "refuse_foreign_output", "remove_output"]


def clear_temporary(paths: Sequence[str], own: Process | None = None) -> None:
    """Removes the temporary files of these outputs, unless they belong to another process
    that lives. ``own`` is the one that asks: this one, or one that it acts for.
    """
    own = own or this_process()
    names: dict[str, set[str]] = {}
    for path in paths:
        folder, name = os.path.split(path)
        own_names = (name, description_path(name))
        names.setdefault(folder, set()).update(map(short_name, own_names))
    for folder, wanted in names.items():
        if not os.path.isdir(folder or "."):
            continue
        # The mark first: one that is taken over sees by it why its files are gone.
        for entry in sorted(os.listdir(folder or "."), key=lambda entry: ".running." not in entry):
            process = process_of(entry)
            if process is None or wanted.isdisjoint(names_of(entry)):
                continue
            left = os.path.join(folder, entry)
            # Those of its own number are of a call that failed, or of a process before it.
            own_number = (process.machine, process.number) == (own.machine, own.number)
            running = False if own_number else _is_running(process)
            if running is not False:
                raise _in_use(left, process.number, certain=running is True)
            remove(left)


def remove_output(path: str) -> None:
    """Removes a file or a Zarr store that recmap wrote, and what it put beside it."""
    if os.path.isdir(path) and not os.path.islink(path) and not_ours(path):
        return
    remove(path)
    remove_description(path)
    remove_sidecar(path)


def refuse_foreign_output(path: str, format: str) -> None:
    """Raise if something lies at the place of an output that overwrite=True must not delete."""
    if os.path.isdir(path):
        if format != "zarr":
            raise OutputExistsError(f"{path} is a folder; give another name for the file")
        refuse_foreign(path)
    refuse_special(path)
    beside = description_path(path)
    if os.path.lexists(beside) and not is_description(beside):
        raise OutputExistsError(
            f"{beside} would be replaced, and is not a description that recmap wrote; move it "
            "away, or write elsewhere"
        )


def _is_running(process: Process) -> bool | None:
    if process.machine != this_process().machine:
        # It cannot be asked, and a container has another name when it is started again. If
        # it does run, it finds its own mark gone, and gives up.
        return False
    return runs(process)


def _in_use(left: str, number: int, certain: bool) -> OutputExistsError:
    if certain:
        return OutputExistsError(
            f"{left} is being written by process {number}; wait for it, or stop it"
        )
    return OutputExistsError(
        f"{left} was left by process {number} or is being written by it: there is a process with "
        "that number, but when it started is not known. If it is a conversion to this place, wait "
        f"for it; if it is something else, remove {left} and call again"
    )
