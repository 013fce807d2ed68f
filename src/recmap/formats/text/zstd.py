"""Files of zstd, through pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from recmap.errors import CompressionError, MissingPackageError
from recmap.local.local_path import located

# Plain bytes at a time.
_SIZE = 1 << 20
_LEVEL = 3


def expand(path: str) -> Iterator[bytes]:
    """Yield the plain bytes of a file of one or more frames."""
    pa = _pyarrow(path)
    with located(path).seekable() as file:
        stream = pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")
        try:
            while plain := stream.read(_SIZE):
                yield plain
        except (OSError, pa.ArrowException) as e:
            raise CompressionError(f"{path}: the zstd stream is damaged: {e}", file=path) from e


def compressor(path: str) -> Callable[[bytes], bytes]:
    """Return what compresses bytes as a frame."""
    codec = _pyarrow(path).Codec("zstd", compression_level=_LEVEL)
    return partial(codec.compress, asbytes=True)


def _pyarrow(path: str) -> Any:
    try:
        import pyarrow as pa
    except ModuleNotFoundError as e:
        raise MissingPackageError(f"{path}: zstd needs the package {e.name}", extra="arrow") from e
    return pa
