"""The tree of an HDF5 file: finding the datasets and groups that are columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recmap.formats.hdf5.file import h5py
from recmap.formats.hdf5.nested import nested_field

__all__ = ["find", "walk"]

# Groups that programs use internally: the prefix of the name, the attribute that marks files
# of the program, and what the group is.
_PRIVATE = (
    ("_i_", "PYTABLES_FORMAT_VERSION", "an index of PyTables"),
    ("_p_", "PYTABLES_FORMAT_VERSION", "internal data of PyTables"),
    ("#refs#", None, "the contents of MATLAB cells"),
    ("#subsystem#", None, "internal data of MATLAB"),
)


def walk(root: Any) -> Iterator[tuple[str, Any]]:
    """Yield each dataset or group that is a column once, with its path.

    For an item that cannot or should not be opened, yield a string with the reason instead.
    """
    seen = {h5py.h5o.get_info(root.id).addr}
    pending = [(_text(name), root, name) for name in reversed(list(root))]
    while pending:
        path, group, name = pending.pop()
        if isinstance(name, bytes):
            yield path, "its name is not UTF-8"
            continue
        try:
            why = _not_followed(group, name)
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
        address = h5py.h5o.get_info(item.id).addr
        if address in seen:
            continue
        seen.add(address)
        if column or why:
            yield path, why or item
        else:
            pending += [(f"{path}/{_text(inner)}", item, inner) for inner in reversed(inside)]


def _text(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.decode("utf-8", "replace")


def _not_followed(group: Any, name: str) -> str | None:
    """Say why not to follow a link; "" if its target is in the tree anyway, None to follow."""
    link = group.get(name, getlink=True)
    if isinstance(link, h5py.HardLink):
        return None
    if isinstance(link, h5py.ExternalLink):
        return f"it lies in another file, {link.filename}; open that one"
    return (
        "" if group.get(name) is not None else f"it is a link to {link.path}, which does not exist"
    )


def _private(root: Any, name: str) -> str:
    for prefix, attribute, what in _PRIVATE:
        if name.startswith(prefix) and (attribute is None or attribute in root.attrs):
            return what
    return ""


def find(root: Any, name: str) -> tuple[str, Any] | None:
    """Find the dataset of a column: the longest prefix of the name that is a dataset."""
    names = name.split(".")
    for end in range(len(names), 0, -1):
        path = ".".join(names[:end])
        item = root.get(path) if path else None
        if _is_column(item):
            return path, item
    return None


def _is_column(item: Any) -> bool:
    if isinstance(item, h5py.Group):
        return nested_field(item) is not None
    return isinstance(item, h5py.Dataset)
