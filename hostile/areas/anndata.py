"""AnnData files that anndata writes: matrices of any kind, tables with nulls, and damaged ones."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import scipy.sparse as sp  # type: ignore[import-untyped]

import recmap as rm
from hostile import arrays
from hostile.case import Case, NoReferenceError
from hostile.file_damage import check_damaged
from hostile.reading import check_some_ways
from hostile.table import Table, rows_of, with_masks
from tests.formats.hdf5.anndata_library import anndata, plain_strings

__all__ = ["case"]


def case(case: Case) -> None:
    with plain_strings():
        _case(case)


def _case(case: Case) -> None:
    rows, genes = case.pick([0, 1, case.between(2, 40)]), case.between(1, 9)
    path = case.path("x.h5ad")
    table = {f"c{i}": _column(case, rows) for i in range(case.between(1, 5))}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            obs = pd.DataFrame(table, [f"r{i}" for i in range(rows)])
            var = pd.DataFrame(index=[f"g{i}" for i in range(genes)])
            made = anndata.AnnData(_matrix(case, rows, genes), obs=obs, var=var)
            for i in range(case.between(0, 2)):
                made.layers[f"l{i}"] = _matrix(case, rows, genes)
            if case.chance(0.5):
                made.obsm["m"] = arrays.values(case, (rows, 3), np.dtype("f8"))
            made.write_h5ad(path, compression=case.pick([None, "gzip", "lzf"]))
    except Exception as e:
        raise NoReferenceError(repr(e)) from e
    case.note(f"{rows} x {genes}: {dict(obs.dtypes)}, layers {list(made.layers)}")
    if case.chance(0.3):
        check_damaged(case, path, lambda: _read(path))
        return
    wanted = with_masks(_read(path), rm.open(path).schema)
    check_some_ways(case, rm.open(path, nulls="mask"), wanted)


def _matrix(case: Case, rows: int, genes: int) -> Any:
    dtype = np.dtype(case.pick(["f4", "f8", "i4", "i8"]))
    dense = arrays.values(case, (rows, genes), dtype)
    if case.chance(0.4):
        return dense
    dense[case.rng.random((rows, genes)) < case.pick([0.0, 0.5, 0.9, 1.0])] = 0
    return sp.csr_matrix(dense)


def _column(case: Case, rows: int) -> Any:
    kind = case.pick(["numbers", "numbers", "text", "category", "category", "nullable"])
    missing = case.rng.random(rows) < case.pick([0.0, 0.3, 1.0])
    if kind == "numbers":
        dtype = np.dtype(case.pick(["?", "i1", "i4", "i8", "u2", "f4", "f8"]))
        return arrays.values(case, (rows,), dtype)
    if kind == "nullable":
        dtype = np.dtype(case.pick(["?", "i1", "i4", "i8", "u2"]))
        values = arrays.values(case, (rows,), dtype)
        masked = pd.arrays.BooleanArray if dtype.kind == "b" else pd.arrays.IntegerArray
        return masked(values, missing)
    texts = np.array([case.pick(["", "a", "é", "漢字", "b c"]) for _ in range(rows)], object)
    if kind == "text":
        return texts
    if case.chance(0.5):
        texts = case.rng.integers(-3, 3, rows).astype(object)
    texts[missing] = None
    return pd.Categorical(texts, ordered=case.chance(0.3))


def _read(path: str) -> Table:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = anndata.read_h5ad(path)
    table: Table = {}
    for name, matrix in {"X": found.X, **_prefixed("layers", found.layers)}.items():
        if sp.issparse(matrix):
            ends = zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)
            spans = [slice(a, b) for a, b in ends]
            table[f"{name}/data"] = [matrix.data[span] for span in spans]
            table[f"{name}/indices"] = [matrix.indices[span] for span in spans]
        else:
            table[name] = list(matrix)
    table.update({name: rows_of(each) for name, each in _prefixed("obsm", found.obsm).items()})
    table["obs/_index"] = list(found.obs_names)
    for name, column in found.obs.items():
        table[f"obs/{name}"] = [
            None if not_there else value
            for value, not_there in zip(_values(column), _missing(column), strict=True)
        ]
    return table


def _values(column: Any) -> Any:
    if isinstance(column.dtype, pd.CategoricalDtype):
        kinds = column.cat.categories.to_numpy()
        return [kinds[code] if code >= 0 else None for code in column.cat.codes]
    data = getattr(column.array, "_data", None)
    return column.to_numpy() if data is None else data


def _missing(column: Any) -> Any:
    floats = isinstance(column.dtype, np.dtype) and column.dtype.kind == "f"
    return np.zeros(len(column), bool) if floats else column.isna()


def _prefixed(group: str, arrays: Any) -> dict[str, Any]:
    return {f"{group}/{name}": array for name, array in arrays.items()}
