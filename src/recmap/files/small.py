"""Small files, whole or not at all."""

from __future__ import annotations

import os

from recmap.files.disk import remove, temporary_path

__all__ = ["write_whole"]


def write_whole(path: str, text: str) -> None:
    """Writes a file under a temporary name, and renames it; a failure leaves nothing."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    temporary = temporary_path(path)
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        remove(temporary)
        raise
