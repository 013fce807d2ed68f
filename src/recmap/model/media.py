"""Tell encoded images and sound from their first bytes."""

from __future__ import annotations

import struct
from typing import NamedTuple


class MediaKind(NamedTuple):
    """A kind of image or sound: its name for people, and its content type."""

    name: str
    type: str

    @property
    def is_image(self) -> bool:
        return self.type.startswith("image/")


_BMP = MediaKind("BMP", "image/bmp")
_MP3 = MediaKind("MP3", "audio/mpeg")
_TIFF = MediaKind("TIFF", "image/tiff")
_GIF = MediaKind("GIF", "image/gif")
_MAGIC = (
    (b"\xff\xd8\xff", MediaKind("JPEG", "image/jpeg")),
    (b"\x89PNG\r\n\x1a\n", MediaKind("PNG", "image/png")),
    (b"GIF87a", _GIF),
    (b"GIF89a", _GIF),
    (b"II*\0", _TIFF),
    (b"MM\0*", _TIFF),
    (b"fLaC", MediaKind("FLAC", "audio/flac")),
    (b"ID3", _MP3),
    (b"OggS", MediaKind("Ogg", "audio/ogg")),
)
_RIFF = {b"WEBP": MediaKind("WebP", "image/webp"), b"WAVE": MediaKind("WAV", "audio/wav")}
_BMP_HEADERS = (12, 40, 52, 56, 64, 108, 124)


def media_kind(data: bytes) -> MediaKind | None:
    """Return the kind of image or sound that a byte string holds, or None.

    >>> media_kind(b"GIF89a...").name, media_kind(b"BMW"), media_kind(b"ID3 is a tag")
    ('GIF', None, None)
    """
    if data[:4] == b"RIFF":
        return _RIFF.get(data[8:12])
    if data[:2] == b"BM":
        return _BMP if _is_bmp(data) else None
    if data[:1] == b"\xff" and data[1:2] in (b"\xfb", b"\xfa", b"\xf3", b"\xf2"):
        return _MP3 if _is_mp3_frame(data) else None
    for magic, kind in _MAGIC:
        if data.startswith(magic) and len(data) > len(magic):
            return kind if magic != b"ID3" or _is_id3(data) else None
    return None


# The marks of these three are too short to tell them from text or numbers.


def _is_bmp(data: bytes) -> bool:
    if len(data) <= 26:
        return False
    size, header = struct.unpack_from("<I", data, 2)[0], struct.unpack_from("<I", data, 14)[0]
    return header in _BMP_HEADERS and 26 < size <= len(data)


def _is_mp3_frame(data: bytes) -> bool:
    if len(data) <= 64:
        return False
    bit_rate, sample_rate = data[2] >> 4, data[2] >> 2 & 3
    return bit_rate not in (0, 15) and sample_rate != 3


def _is_id3(data: bytes) -> bool:
    # A version, flags, and a size of four times seven bits.
    return len(data) > 10 and data[3] < 16 and max(data[6:10]) < 128


# The segments of a JPEG that have its size: all beginnings of a frame.
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# The channels of the colour types of PNG.
_PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}


def image_shape(data: bytes) -> tuple[int, int, int] | None:
    """Return height, width and channels of a PNG or a JPEG by its header; None if it is neither.

    >>> header = b"\\x89PNG\\r\\n\\x1a\\n\\0\\0\\0\\rIHDR"
    >>> image_shape(header + struct.pack(">IIBB", 64, 48, 8, 2)), image_shape(b"GIF89a...")
    ((48, 64, 3), None)
    """
    kind = media_kind(data)
    name = None if kind is None else kind.name
    try:
        if name == "PNG" and data[12:16] == b"IHDR":
            width, height, _, color = struct.unpack_from(">IIBB", data, 16)
            return height, width, _PNG_CHANNELS[color]
        return _jpeg_shape(data) if name == "JPEG" else None
    except (struct.error, KeyError):
        return None


def _jpeg_shape(data: bytes) -> tuple[int, int, int] | None:
    at = 2
    while True:
        mark, code, size = struct.unpack_from(">BBH", data, at)
        if mark != 0xFF:
            return None
        if code == 0xFF:  # a marker may have several
            at += 1
        elif code in _JPEG_FRAMES:
            height, width, channels = struct.unpack_from(">HHB", data, at + 5)
            return height, width, channels
        else:
            at += 2 + size
