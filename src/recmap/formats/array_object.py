"""Arrays as sources: those of NumPy in any layout, and of other libraries.

Nothing is copied if the memory of an array can be used as it is.

A memory map stays mapped, whatever its size. If it can be shown where it lies in its file, other
processes map the file themselves, and a conversion can be resumed.
"""

from __future__ import annotations

import array as stdlib
import mmap
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from recmap.errors import MissingPackageError, OptionError, OptionTypeError, RecmapError
from recmap.formats.column_readers import DEFAULT_NAME, array_columns, array_refusal
from recmap.formats.column_source import ColumnsSource
from recmap.local.local_path import LocalPath, located
from recmap.machine.mapped import guarded, reach
from recmap.model.arguments import as_dtype
from recmap.model.casting import refuse_masked

_MAPPINGS = "/proc/self/maps"
# A line of _MAPPINGS: addresses, permissions, offset in the file, device, inode, path.
_MAPPING = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) ...(.) ([0-9a-f]+) \S+ (\d+) *(.*)")
_DELETED = b" (deleted)"
_MOVED = "{path} is not the file that was mapped: it was removed or replaced"
# Devices of DLPack whose memory the CPU can read: its own, and page-locked memory of CUDA and ROCm.
_ON_CPU = (1, 3, 11)
_TO_CPU = {
    "torch": "x.cpu()",
    "jax": "jax.device_get(x)",
    "jaxlib": "jax.device_get(x)",
    "cupy": "cupy.asnumpy(x)",
}
# What NumPy has only with ml_dtypes, and integers of the same size.
_AS_INTEGERS = {
    "bfloat16": "int16",
    "float8_e4m3fn": "uint8",
    "float8_e4m3fnuz": "uint8",
    "float8_e5m2": "uint8",
    "float8_e5m2fnuz": "uint8",
    "float8_e8m0fnu": "uint8",
}
# Rows to compare with the file, where the system does not tell which file is mapped.
_COMPARED = 64


@dataclass(frozen=True)
class ArrayPlace:
    """Where an array lies in a file: enough to map it again, in any process."""

    path: str
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    name: str = DEFAULT_NAME

    @guarded
    def __call__(self) -> ColumnsSource:
        """Map the file, and return the rows of the array."""
        file = located(self.path).map()
        columns = array_columns(self.name, self._array(file.bytes), file)
        return ColumnsSource(
            "memmap", [self.path], columns, "given", self, file, reference=self._with_numpy
        )

    def _with_numpy(self) -> ColumnsSource:
        """Return the same rows, mapped by NumPy."""
        array = self._array(np.memmap(self.path, np.uint8, "r"))
        return ColumnsSource("memmap", [self.path], array_columns(self.name, array))

    def _array(self, content: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        try:
            return np.ndarray(self.shape, self.dtype, content, self.offset, self.strides)
        except (TypeError, ValueError) as e:
            raise OptionError(
                f"{self.path}: a memmap of {self.shape} {self.dtype} at byte {self.offset:,} does "
                f"not fit into the {len(content):,} bytes of the file; was it truncated? ({e})"
            ) from e


def open_array(
    array: npt.NDArray[Any], name: str = DEFAULT_NAME
) -> tuple[ColumnsSource, ArrayPlace | None]:
    """Return the rows of an array, and where they lie in a file; None if they are in memory.

    A structured array gives one column per field. Nothing is copied: rows are views.
    """
    array = np.asarray(array)
    if array.dtype.hasobject:
        raise OptionError(
            'an array of Python objects: for a column of strings or lists, rm.open({"x": array}); '
            "for paths, rm.open(list(array)); for numbers, array.astype(float)"
        )
    refusal = array_refusal(array.dtype, array.shape)
    if refusal:
        raise OptionError(f"the array {refusal}")
    mapped = _memmap_below(array)
    if mapped is None or not array.size:
        return ColumnsSource("memory", [], array_columns(name, array), "given"), None
    found = _find_place(array, mapped, name)
    if isinstance(found, ArrayPlace):
        return found(), found
    columns = array_columns(name, array)
    return ColumnsSource("memmap", [], columns, "given", _OnlyHere(found)), None


class _OnlyHere:
    """Refuses to send a memory map to another process, which would read all of it."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __call__(self) -> NoReturn:
        raise self._error()

    def __reduce__(self) -> NoReturn:
        raise self._error()

    def _error(self) -> OptionError:
        return OptionError(
            f"this memmap cannot be opened in another process: {self._why}; use threads, or give "
            "the path of the file to rm.open"
        )


def _memmap_below(array: npt.NDArray[Any]) -> np.memmap[Any, Any] | None:
    """Return the memory map that an array is a view of; None if it is in memory."""
    found = None
    for owner in _owners(array):
        if isinstance(owner, np.memmap):
            found = owner
        if isinstance(owner, mmap.mmap):
            return found if found is not None and _mapping(found) is owner else None
    return None


def _owners(array: npt.NDArray[Any]) -> Iterator[Any]:
    owner: Any = array
    while owner is not None:
        yield owner
        owner = getattr(owner, "base", None)


def _mapping(mapped: np.memmap[Any, Any]) -> mmap.mmap | None:
    return getattr(mapped, "_mmap", None)


def _find_place(
    array: npt.NDArray[Any], mapped: np.memmap[Any, Any], name: str
) -> ArrayPlace | str:
    """Return where an array lies in the file, or why that is not known for certain."""
    if mapped.mode == "c":
        return 'its mode is "c", so changes to it are not in the file'
    if mapped.filename is None:
        return "NumPy does not know the path of its file"
    path = os.fspath(mapped.filename)
    if not os.path.exists(path):
        return _MOVED.format(path=path)
    content = np.frombuffer(_mapping(mapped), np.uint8)  # type: ignore[arg-type]
    low, high = reach(array)
    at = _address(array) - _address(content)
    if at + low < 0 or at + high > len(content):
        return "it reaches beyond the mapped part of the file"
    # NumPy maps from the last page boundary before the offset that the user gave.
    first = mapped.offset - mapped.offset % mmap.ALLOCATIONGRANULARITY
    path = _pinned(path, mapped.mode)
    place = ArrayPlace(path, first + at, array.dtype, array.shape, array.strides, name)
    why = _refuted(place, array) if sys.platform != "linux" else _moved(place, array)
    return why or place


def _pinned(path: str, mode: str) -> str:
    """Return a path that remembers the file. One that is mapped to be written to may change."""
    found = LocalPath(path).found()
    if mode == "r" or found.state is None:
        return found
    return LocalPath(found, found.state.without_time())


def _moved(place: ArrayPlace, array: npt.NDArray[Any]) -> str:
    """Say why the file at a path is not the one that is mapped; "" if it is."""
    address = _address(array)
    with open(_MAPPINGS, "rb") as mappings:
        lines = map(_MAPPING.match, mappings)
        found = next(
            (m for m in lines if m and int(m[1], 16) <= address < int(m[2], 16)),
            None,
        )
    if found is None or found[3] != b"s":
        return "it is not shared with its file"
    changed = _MOVED.format(path=place.path)
    if found[6].endswith(_DELETED) or not os.path.exists(place.path):
        return changed
    real = os.fsencode(os.path.realpath(place.path)).replace(b"\n", b"\\012")
    # Some file systems show other inodes here, but the path is that of the mapped file.
    if int(found[5]) != os.stat(place.path).st_ino and found[6] != real:
        return changed
    if int(found[4], 16) + address - int(found[1], 16) != place.offset:
        return "its offset is not the one that NumPy reports"
    return ""


def _refuted(place: ArrayPlace, array: npt.NDArray[Any]) -> str:
    """Say why the file at a path does not hold an array; "" if some of its rows are the same."""
    try:
        source = place()
    except (OSError, RecmapError) as e:
        return str(e)
    rows = np.unique(np.linspace(0, len(array) - 1, min(len(array), _COMPARED), dtype=np.int64))
    there = source.gather(rows)
    here = ColumnsSource("memory", [], array_columns(place.name, array)).gather(rows)
    if any(_bits(here[name]) != _bits(there[name]) for name in here):
        return f"{place.path} no longer holds the same values"
    return ""


def _bits(column: Any) -> bytes:
    return bytes(column.tobytes()) if isinstance(column, np.ndarray) else repr(column).encode()


def _address(array: npt.NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def is_array(x: Any) -> bool:
    """Return whether an object is an array, or says how to make one."""
    if isinstance(x, type):
        return False
    named = isinstance(x, np.ndarray | stdlib.array | memoryview)
    return named or hasattr(x, "__array__") or hasattr(x, "__dlpack__")


def as_array(x: Any) -> npt.NDArray[Any]:
    """Return an object that ``is_array`` as a NumPy array, of the memory of ``x`` if possible."""
    if isinstance(x, np.ndarray):
        refuse_masked(x)
        return np.asarray(x)
    package = type(x).__module__.partition(".")[0]
    _refuse_device(x, package)
    if package == "torch":
        return _from_torch(x)
    try:
        made = np.asarray(x) if not _only_dlpack(x) else np.from_dlpack(x)
    except Exception as e:  # other libraries may raise anything
        raise OptionTypeError(
            f"cannot make a NumPy array of {type(x).__qualname__}: {type(e).__name__}: {e}"
        ) from e
    refuse_masked(made)
    return np.asarray(made)


def _only_dlpack(x: Any) -> bool:
    return not hasattr(x, "__array__") and not isinstance(x, stdlib.array | memoryview)


def _refuse_device(x: Any, package: str) -> None:
    """Refuse memory of a GPU: a copy of it may not fit, and nobody asked for one."""
    try:
        device = int(x.__dlpack_device__()[0])
    except Exception:  # none, or the library cannot tell, as for some dtypes
        return
    if device not in _ON_CPU:
        raise OptionError(
            f"this {type(x).__qualname__} is not in the memory of the CPU; move it there: "
            f"rm.open({_TO_CPU.get(package, 'numpy.asarray(x)')})"
        )


def _from_torch(tensor: Any) -> npt.NDArray[Any]:
    """Return a tensor as an array. NumPy has no bfloat16, so its bits are used."""
    if tensor.device.type != "cpu":
        raise OptionError(
            f"this tensor is on {tensor.device}, not in the memory of the CPU; move it there: "
            "rm.open(x.cpu())"
        )
    if tensor.is_nested or str(tensor.layout) != "torch.strided" or tensor.is_quantized:
        raise OptionError(
            "a nested, sparse or quantized tensor has no rows of one size; make a dense one: "
            "x.to_dense(), x.dequantize(), or rm.open({...: list of rows}) for a nested one"
        )
    plain = tensor.detach().resolve_conj().resolve_neg()
    try:
        made: npt.NDArray[Any] = plain.numpy()
        return made
    except TypeError:
        name = str(plain.dtype).removeprefix("torch.")
    integers = _AS_INTEGERS.get(name)
    if integers is None:
        raise OptionError(f"NumPy has no {name}; make it another dtype first, with x.to(...)")
    try:
        dtype = as_dtype("dtype", name)
    except OptionError:
        raise MissingPackageError(
            f"a tensor of {name} needs the package ml_dtypes: pip install ml_dtypes"
        ) from None
    bits: npt.NDArray[Any] = plain.view(getattr(sys.modules["torch"], integers)).numpy()
    return bits.view(dtype)
