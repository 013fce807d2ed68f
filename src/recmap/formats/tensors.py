"""Arrays of other libraries as NumPy arrays, without a copy where the memory allows."""

from __future__ import annotations

import array as stdlib
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import MissingPackageError, OptionError, OptionTypeError
from recmap.model.arguments import as_dtype
from recmap.model.casting import refuse_masked

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
