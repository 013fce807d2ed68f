"""Tar files of WebDataset in the dialects that tarfile writes, compared with what it reads."""

from __future__ import annotations

import io
import tarfile
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import recmap as rm
from hostile.case import Case
from hostile.file_damage import check_damaged
from hostile.reading import check_some_ways
from hostile.table import Table

__all__ = ["case"]

_EXTENSIONS = ("jpg", "cls", "txt", "npy", "seg.npy", "json", "bin", "a b", "ä")
_DIALECTS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)


def case(case: Case) -> None:
    files = case.pick([1, 1, 1, 3, 20])
    paths = [case.path(f"x{number:02d}.tar") for number in range(files)]
    _write(case, paths)
    if files == 1 and case.chance(0.6):
        check_damaged(case, paths[0], lambda: _read(paths))
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rm.LeftOutWarning)
        ds = rm.open(paths)
    check_some_ways(case, ds, _read(paths))


def _write(case: Case, paths: list[str]) -> None:
    dialect = case.pick(_DIALECTS)
    chosen = [name for name in _EXTENSIONS if case.chance(0.4)] or ["jpg"]
    dtype, inner = case.pick(["<f4", ">i2", "u1", "<f8"]), case.pick([(), (3,), (2, 2)])
    varies = case.chance(0.3)
    case.note(f"dialect {dialect}, {chosen}, {dtype} {inner} {varies}")
    for path in paths:
        _write_file(case, path, dialect, partial(_content, case, dtype, inner, varies), chosen)


def _write_file(
    case: Case, path: str, dialect: int, content_of: Callable[[str], bytes], chosen: list[str]
) -> None:
    with tarfile.open(path, "w", format=dialect) as tar:
        for row in range(case.between(1, 40)):
            folder = case.pick(["", "", "some/where/", "f" * 60 + "/" + "g" * 30 + "/"])
            key = f"{folder}{'k' * case.pick([1, 1, 9])}{row}"
            for name in chosen:
                content = content_of(name)
                info = tarfile.TarInfo(f"{key}.{name}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            if case.chance(0.1):
                info = tarfile.TarInfo(f"{key}/")
                info.type = tarfile.DIRTYPE
                tar.addfile(info)


def _content(case: Case, dtype: str, inner: tuple[int, ...], varies: bool, name: str) -> bytes:
    if name == "cls":
        return b"%d" % case.between(-(2**63), 2**63 - 1)
    if name in ("txt", "json"):
        return "ä€x".encode() * case.between(0, 300)
    if name.endswith("npy"):
        shape = (case.between(0, 5), *inner) if varies else inner
        values = case.rng.integers(0, 100, shape).astype(dtype)
        member = io.BytesIO()
        np.lib.format.write_array(member, np.asarray(values))
        return member.getvalue()
    return case.rng.bytes(case.pick([0, 1, 511, 512, 513, 3000]))


def _read(paths: list[str]) -> Table:
    """Read the samples with tarfile, as WebDataset groups and decodes them."""
    samples = [sample for path in paths for sample in _samples(path)]
    names = dict.fromkeys(name for sample in samples for name in sample)
    return {name: [sample.get(name) for sample in samples] for name in names}


def _samples(path: str) -> list[dict[str, Any]]:
    samples: dict[str, dict[str, Any]] = {}
    with tarfile.open(path, "r:") as tar:
        for info in tar:
            if not info.isreg():
                continue
            folder, slash, base = info.name.rpartition("/")
            stem, dot, name = base.partition(".")
            if not stem or not dot:
                continue
            member = tar.extractfile(info)
            assert member is not None
            key = folder + slash + stem
            sample = samples.setdefault(key, {"__key__": key})
            sample[name.lower()] = _decoded(name, member.read())
    return list(samples.values())


def _decoded(name: str, content: bytes) -> Any:
    if name == "cls":
        return np.int64(int(content))
    if name in ("txt", "json"):
        return content.decode()
    if name.endswith("npy"):
        return np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    return content
