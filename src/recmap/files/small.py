"""Small files, whole or not at all."""

from __future__ import annotations

import os

__all__ = ["write_whole"]


def write_whole(path: str, text: str) -> None:
    """Writes a file under a temporary name, and renames it; a failure leaves nothing."""
    folder, name = os.path.split(path)
    os.makedirs(folder or ".", exist_ok=True)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
