"""Small files, whole or not at all."""

from __future__ import annotations

import os

from recmap.files.temporary import make_folder, remove, temporary_path, writing

__all__ = ["read_whole", "write_whole"]


def read_whole(path: str, most: int) -> str:
    """Reads a file; a ValueError if it has more than ``most`` bytes, or is no text. Memory is
    taken for what is there: file.read(most) would take it for all that may be.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise ValueError(f"{size:,} bytes are too many")
        return file.read(size).decode()


def write_whole(path: str, text: str) -> None:
    """Writes a file under a temporary name, and renames it; a failure leaves nothing."""
    make_folder(path)
    temporary = temporary_path(path)
    try:
        with writing(path), open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        remove(temporary)
        raise
