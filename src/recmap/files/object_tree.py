"""All objects below a folder, such as those of a Zarr store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from recmap.files.file_state import ZARR_FILES
from recmap.files.location import Stat
from recmap.files.object_address import ObjectAddress
from recmap.files.object_writer import copy_object, delete_object
from recmap.files.threads import Threads

# Objects to copy or delete at a time.
_REQUESTS = 16


def stat_of_tree(path: ObjectAddress) -> Stat:
    """Return the size of all objects below a path, and a digest of their names and versions."""
    objects = tree_of(path)
    lines = (f"{name}\0{etag}\n" for name, (_, etag) in sorted(objects.items()))
    digest = hashlib.sha256("".join(lines).encode()).hexdigest()[:32]
    return Stat(sum(size for size, _ in objects.values()), digest)


def tree_of(path: ObjectAddress) -> dict[str, tuple[int, str]]:
    """Return size and version of all objects below a path by name; none if it is not a folder."""
    prefix = path.key.rstrip("/")

    def listed(obstore: Any, store: Any) -> dict[str, tuple[int, str]]:
        found: dict[str, tuple[int, str]] = {}
        for batch in obstore.list(store, prefix or None):
            for meta in batch:
                name = meta["path"].removeprefix(f"{prefix}/" if prefix else "")
                if name != meta["path"] or not prefix:
                    found[name] = meta["size"], str(meta["e_tag"]).strip('"')
        return found

    return path.store.request(path.key, listed)


def remove_others(path: ObjectAddress, names: Iterable[str]) -> None:
    """Delete all objects below a path except those named."""
    others = set(tree_of(path)) - set(names)
    _for_each(others, lambda name: delete_object(path.child(name)))


def copy_tree(src: ObjectAddress, dst: ObjectAddress) -> None:
    """Make the objects below a path the same as those below another: a Zarr store."""

    def copy(name: str) -> None:
        copy_object(src.child(name), dst.child(name))

    replace_tree(dst, list(tree_of(src)), lambda names: _for_each(names, copy))


def replace_tree(
    path: ObjectAddress, names: Sequence[str], send: Callable[[Sequence[str]], None]
) -> None:
    """Make a Zarr store of these objects, which ``send`` puts there, and remove all others.

    The metadata of every array and group is deleted first, from the root down, and sent last, from
    the arrays up. So neither the store nor an array in it ever seems to be whole while it is not.
    """
    for old in _by_depth(filter(_is_metadata, tree_of(path))):
        _for_each(old, lambda name: delete_object(path.child(name)))
    send([name for name in names if not _is_metadata(name)])
    remove_others(path, names)
    for new in reversed(_by_depth(filter(_is_metadata, names))):
        # What describes a group must be there when the group is.
        send([name for name in new if name.endswith(".zattrs")])
        send([name for name in new if not name.endswith(".zattrs")])


def _is_metadata(name: str) -> bool:
    return name.rpartition("/")[2] in (*ZARR_FILES, ".zattrs")


def _by_depth(names: Iterable[str]) -> list[list[str]]:
    """Group the names of objects by how deep they are, those at the root first."""
    depths: dict[int, list[str]] = {}
    for name in names:
        depths.setdefault(name.count("/"), []).append(name)
    return [depths[depth] for depth in sorted(depths)]


def _for_each(names: Iterable[str], work: Callable[[str], None]) -> None:
    with Threads(_REQUESTS, "recmap-objects") as pool:
        for future in [pool.submit(work, name) for name in names]:
            future.result()
