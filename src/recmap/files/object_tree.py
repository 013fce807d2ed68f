"""All objects below a folder, such as those of a Zarr store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from recmap.files.object_path import ObjectPath
from recmap.files.object_writer import copy_object, delete_object
from recmap.files.threads import Threads

__all__ = ["Tree", "copy_tree", "remove_others", "tree_of"]

# Objects to copy or delete at a time.
_REQUESTS = 16


class Tree:
    """The names, sizes and versions of the objects below a folder."""

    def __init__(self, objects: dict[str, tuple[int, str]]) -> None:
        self.objects = objects

    @property
    def size(self) -> int:
        return sum(size for size, _ in self.objects.values())

    @property
    def digest(self) -> str:
        """A digest of all names and versions, which changes if one of them does."""
        lines = (f"{name}\0{etag}\n" for name, (_, etag) in sorted(self.objects.items()))
        return hashlib.sha256("".join(lines).encode()).hexdigest()[:32]


def tree_of(path: ObjectPath) -> Tree:
    """List all objects below a path; none if it is no folder."""
    prefix = path.key.rstrip("/")

    def listed(obstore: Any, store: Any) -> dict[str, tuple[int, str]]:
        found: dict[str, tuple[int, str]] = {}
        for batch in obstore.list(store, prefix or None):
            for meta in batch:
                name = meta["path"].removeprefix(f"{prefix}/" if prefix else "")
                if name != meta["path"] or not prefix:
                    found[name] = meta["size"], str(meta["e_tag"]).strip('"')
        return found

    return Tree(path.store.request(path.key, listed))


def remove_others(path: ObjectPath, names: Iterable[str]) -> None:
    """Delete all objects below a path except those named."""
    others = set(tree_of(path).objects) - set(names)
    _for_each(others, lambda name: delete_object(path.inside(name)))


def copy_tree(src: ObjectPath, dst: ObjectPath, last: Sequence[str] = ()) -> None:
    """Make the objects below a path the same as those below another.

    Those named ``last`` are deleted first and copied last, so that there is never half a tree.
    """
    names = tree_of(src).objects

    def copy(name: str) -> None:
        copy_object(src.inside(name), dst.inside(name))

    for name in last:
        delete_object(dst.inside(name))
    _for_each([name for name in names if name not in last], copy)
    remove_others(dst, names)
    _for_each([name for name in names if name in last], copy)


def _for_each(names: Iterable[str], work: Callable[[str], None]) -> None:
    with Threads(_REQUESTS, "recmap-objects") as pool:
        for future in [pool.submit(work, name) for name in names]:
            future.result()
