"""Generate code for a PyTorch Dataset of some files."""

from __future__ import annotations

from recmap.model.field import Field
from recmap.model.schema import Schema

__all__ = ["torch_snippet"]

_TYPES = {
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
    "float16", "float32", "float64", "complex64", "complex128",
}  # fmt: skip


def torch_snippet(schema: Schema, call: str) -> str:
    """Return code that opens files with ``call`` and returns each row as a dict of tensors."""
    values = "".join(
        f"            {name!r}: {_value(name, field)},  # {field}\n"
        for name, field in schema.items()
    )
    return f"""\
import numpy as np
import recmap as rm
import torch


class Rows(torch.utils.data.Dataset):
    def __init__(self):
        self.rows = {call}

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        return {{
{values}        }}
"""


def _value(name: str, field: Field) -> str:
    row = f"row[{name!r}]"
    if field.is_bytes:
        return row if not field.shape else f"{row}.tolist()"
    if field.ragged > 1:
        return f"[{_tensor('step', field)} for step in {row}]"
    return _tensor(row, field)


def _tensor(value: str, field: Field) -> str:
    dtype = field.dtype.newbyteorder("=") if field.dtype.kind != "V" else field.dtype
    if dtype.name in _TYPES:
        cast = "" if field.dtype.isnative else f", {dtype.name!r}"
        return f"torch.from_numpy(np.asarray({value}{cast}))"
    if dtype.name == "bfloat16":
        return f"torch.from_numpy(np.asarray({value}).view(np.int16)).view(torch.bfloat16)"
    if dtype.kind in "mM":
        return f"torch.from_numpy(np.asarray({value}).astype(np.int64))"
    return value  # torch has no such type
