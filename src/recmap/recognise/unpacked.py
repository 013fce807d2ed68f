"""What compressed files begin with, as far as their first bytes show it."""

from __future__ import annotations

from typing import Any

from recmap.local.gzip import inflater


def begin_of(packer: str, head: bytes, most: int) -> tuple[bytes | None, bool]:
    """Unpack up to ``most`` bytes of a stream of members, and return whether it ends with ``head``.

    The bytes are None if it is something else.
    """
    plain, whole = b"", False
    while head and len(plain) < most:
        made = _unpacker(packer)
        if made is None:
            return b"", True
        engine, errors = made
        try:
            plain += bytes(engine.decompress(head, most - len(plain)))
        except errors:
            # For xz, a large dictionary or damage: its magic number is long enough.
            first = (b"", True) if packer == "xz" else (None, False)
            return (plain, False) if plain or whole else first
        whole = bool(engine.eof)
        head = engine.unused_data if whole else b""
    return plain, whole


def _unpacker(packer: str) -> tuple[Any, Any] | None:
    """Return what unpacks one member, and the errors it raises; None if nothing here does."""
    if packer in ("gzip", "zlib"):
        return inflater("gzip" if packer == "gzip" else "zlib")
    if packer == "bzip2":
        import bz2

        return bz2.BZ2Decompressor(), (OSError, ValueError)
    if packer == "xz":
        import lzma

        return lzma.LZMADecompressor(memlimit=128 << 20), lzma.LZMAError
    return None
