"""What lies where in an HDF5 file: datasets, and groups that are columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recmap.formats.hdf5.library import h5py
from recmap.formats.hdf5.nested import nested_field

__all__ = ["find", "walk"]

# What programs keep beside the data of their users: how the name of the group begins,
# the attribute that their files have, and what it is.
_PRIVATE = (
    ("_i_", "PYTABLES_FORMAT_VERSION", "an index that PyTables keeps"),
    ("_p_", "PYTABLES_FORMAT_VERSION", "what PyTables keeps for itself"),
    ("#refs#", None, "what cells of MATLAB refer to"),
    ("#subsystem#", None, "what MATLAB keeps for itself"),
)


def walk(root: Any) -> Iterator[tuple[str, Any]]:
    """All of them by their paths, each once; of what cannot be opened, or should not be,
    why.
    """
    seen = {h5py.h5o.get_info(root.id).addr}
    pending = [(_text(name), root, name) for name in reversed(list(root))]
    while pending:
        path, group, name = pending.pop()
        if isinstance(name, bytes):
            yield path, "its name is no UTF-8"
            continue
        try:
            why = _elsewhere(group, name)
            if why is not None:
                if why:
                    yield path, why
                continue
            item = group[name]
            column = _is_column(item)
            why = "" if column else _private(root, name)
            inside = list(item) if isinstance(item, h5py.Group) and not column else []
        except (KeyError, OSError, RuntimeError, TypeError, ValueError) as e:
            yield path, f"it cannot be opened: {e}"
            continue
        place = h5py.h5o.get_info(item.id).addr
        if place in seen:
            continue
        seen.add(place)
        if column or why:
            yield path, why or item
        else:
            pending += [(f"{path}/{_text(inner)}", item, inner) for inner in reversed(inside)]


def _text(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.decode("utf-8", "replace")


def _elsewhere(group: Any, name: str) -> str | None:
    """Why a link is not followed; "" if it leads to what is found anyway."""
    link = group.get(name, getlink=True)
    if isinstance(link, h5py.HardLink):
        return None
    if isinstance(link, h5py.ExternalLink):
        return f"it lies in another file, {link.filename}; open that one"
    return "" if group.get(name) is not None else f"it is a link to {link.path}, where nothing is"


def _private(root: Any, name: str) -> str:
    for begin, mark, what in _PRIVATE:
        if name.startswith(begin) and (mark is None or mark in root.attrs):
            return what
    return ""


def find(root: Any, name: str) -> tuple[str, Any] | None:
    """The dataset of a column: the longest part of its name that is one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        path = ".".join(parts[:end])
        item = root.get(path) if path else None
        if _is_column(item):
            return path, item
    return None


def _is_column(item: Any) -> bool:
    if isinstance(item, h5py.Group):
        return nested_field(item) is not None
    return isinstance(item, h5py.Dataset)
