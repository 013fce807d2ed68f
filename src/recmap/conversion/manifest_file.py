"""Where a manifest lies, and what one that is there says. It may come from anywhere."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from recmap.conversion.plan import is_folder
from recmap.errors import OutputExistsError
from recmap.files.atomic_write import read_whole
from recmap.files.temporary import short_name

__all__ = [
    "existing_files",
    "file_names",
    "load_manifest",
    "manifest_path",
    "refuse_foreign_manifest",
]

_MAX_SIZE = 256 << 20


def manifest_path(dst: str) -> str:
    """That of an output.

    >>> manifest_path("out/"), manifest_path("out/x.npy")
    ('out/_manifest.json', 'out/.x.npy.manifest.json')
    """
    if is_folder(dst):
        return os.path.join(dst, "_manifest.json")
    folder, name = os.path.split(dst)
    return os.path.join(folder, f".{short_name(name)}.manifest.json")


def load_manifest(path: str) -> dict[str, Any]:
    """What it says; nothing if there is none, it was cut while it was written, or is not ours."""
    try:
        content = json.loads(read_whole(path, _MAX_SIZE))
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def refuse_foreign_manifest(path: str) -> None:
    """Raise if a file of that name is not recmap's, so that it is not written over."""
    try:
        with open(path, "rb") as file:
            head = file.read(32)
    except FileNotFoundError:
        return
    except OSError as e:
        raise OutputExistsError(f"{path} cannot be read: {e.strerror}; write elsewhere") from e
    if head and re.match(rb'\{\s*"recmap"\s*:', head) is None:
        raise OutputExistsError(
            f"{path} is not a manifest that recmap wrote, and would be replaced; move it away, or "
            "write elsewhere"
        )


def file_names(entries: Any) -> list[str]:
    """The files of a list in a manifest: only names in its own folder."""
    if not isinstance(entries, list):
        return []
    names = [entry.get("file") if isinstance(entry, dict) else entry for entry in entries]
    plain = [n for n in names if isinstance(n, str) and n not in ("", ".", "..")]
    return [n for n in plain if os.path.basename(n) == n and "\0" not in n]


def existing_files(path: str, *lists: Any) -> list[str]:
    """The files that lists in a manifest name, of those that are there."""
    folder = os.path.dirname(path)
    paths = [os.path.join(folder, name) for entries in lists for name in file_names(entries)]
    return [path for path in paths if os.path.exists(path)]
