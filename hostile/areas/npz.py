"""Archives that NumPy and zipfile write: stored, deflated, with other members, damaged."""

from __future__ import annotations

import io
import warnings
import zipfile
from typing import Any

import numpy as np
import numpy.typing as npt

import recmap as rm
from hostile import arrays
from hostile.case import Case
from hostile.file_damage import check_damaged
from hostile.reading import check_some_ways
from hostile.table import table_of

__all__ = ["case"]


def case(case: Case) -> None:
    rows = case.between(2, 60)
    columns = {}
    for _ in range(case.between(1, 4)):
        columns[arrays.name(case)] = arrays.array(case, rows)
    path = case.path("x.npz")
    _write(case, path, columns)
    if case.chance(0.4):
        check_damaged(case, path, lambda: table_of(_read(path)), checksums=True)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rm.LeftOutWarning)
        ds = rm.open(path, fields=list(columns))
    check_some_ways(case, ds, table_of(columns))


def _write(case: Case, path: str, columns: dict[str, npt.NDArray[Any]]) -> None:
    how = case.pick(["savez", "savez_compressed", "zipfile"])
    case.note(f"{how}: " + ", ".join(f"{n} {a.dtype} {a.shape}" for n, a in columns.items()))
    if how == "zipfile":
        with zipfile.ZipFile(path, "w") as archive:
            for name, array in columns.items():
                member = io.BytesIO()
                np.lib.format.write_array(member, arrays.lay_out(case, array))
                packing = case.pick([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
                archive.writestr(f"{name}.npy", member.getvalue(), packing)
            if case.chance(0.3):
                archive.comment = b"made by hand"
        return
    save = np.savez if how == "savez" else np.savez_compressed
    with open(path, "wb") as file:
        save(file, **columns)  # type: ignore[arg-type]


def _read(path: str) -> dict[str, npt.NDArray[Any]]:
    """Read the members whole, and check their checksums. np.load would require the zip to
    begin at the start of the file.
    """
    found = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            content = io.BytesIO(archive.read(name))
            if name.endswith(".npy"):
                array = np.lib.format.read_array(content, allow_pickle=False)
                found[name.removesuffix(".npy")] = array
    return found
