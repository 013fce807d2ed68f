"""AnnData files, compared with what anndata reads from the files that it wrote."""

from __future__ import annotations

import pickle
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
import scipy.sparse as sp  # type: ignore[import-untyped]

import recmap as rm
from recmap.cli import main
from tests.buckets import Bucket
from tests.formats.every_format import assert_same
from tests.formats.hdf5.anndata_library import anndata, plain_strings

CELLS, GENES = 60, 25


def counts(seed: int = 0, genes: int = GENES) -> Any:
    """Return a matrix with rows that are empty, at the beginning, inside and at the end."""
    made = np.random.default_rng(seed).poisson(0.4, (CELLS, genes)).astype("float32")
    made[[0, 7, 8, 9, CELLS - 1]] = 0
    return sp.csr_matrix(made)


def cells() -> Any:
    kinds = np.array(["B cell", "T cell", "naïve", None], object)
    at = np.arange(CELLS)
    columns = {
        "cell_type": pd.Categorical(kinds[at % 4]),
        "batch": pd.Categorical(
            [f"b{i % 3}" for i in at], ["b2", "b1", "b0", "none"], ordered=True
        ),
        "leiden": pd.Categorical(at % 5 * 10),
        "all_missing": pd.Categorical([None] * CELLS, ["x"]),
        "n_counts": np.linspace(0, 1, CELLS),
        "doublet": at % 2 == 0,
        "note": [f"text {i}" for i in at],
        "age": pd.array([None if i % 6 == 0 else int(i) for i in at], "Int32"),
        "checked": pd.array([None if i % 5 == 1 else bool(i % 2) for i in at], "boolean"),
        "maybe": pd.array([None if i % 7 == 2 else f"é{i}" for i in at], pd.StringDtype("python")),
    }
    return pd.DataFrame(columns, [f"CELL-{i}" for i in at])


def made(x: Any = None, **options: Any) -> Any:
    genes = pd.DataFrame(
        {"symbol": pd.Categorical([f"g{i % 9}" for i in range(GENES)]), "length": np.arange(GENES)},
        [f"ENSG{i:05}" for i in range(GENES)],
    )
    return anndata.AnnData(counts() if x is None else x, obs=cells(), var=genes, **options)


def write(adata: Any, path: str = "a.h5ad", **options: Any) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if hasattr(anndata.settings, "allow_write_nullable_strings"):
            anndata.settings.allow_write_nullable_strings = True
        adata.write_h5ad(path, **options)
    return path


def matrix(batch: Any, name: str = "X", genes: int = GENES) -> Any:
    data, indices = batch[f"{name}/data"], batch[f"{name}/indices"]
    assert np.array_equal(data.offsets, indices.offsets)
    offsets = data.offsets - data.offsets[0]
    return sp.csr_matrix((data.flat, indices.flat, offsets), (len(data), genes))


def same_matrix(found: Any, wanted: Any) -> None:
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert (found != wanted).nnz == 0


def values(series: Any) -> list[Any]:
    return [None if pd.isna(value) else value for value in series]


@pytest.fixture(autouse=True)
def _plain_strings() -> Iterator[None]:
    with plain_strings():
        yield


@pytest.mark.parametrize("compression", [None, "gzip", "lzf"])
def test_cells_are_rows(compression: str | None) -> None:
    adata = made()
    path = write(adata, compression=compression)
    ds = rm.open(path)
    assert ds.info().format == "anndata"
    assert len(ds) == CELLS
    assert {str(ds.schema[f"X/{part}"]) for part in ("data", "indices")} == {
        "float32[*]",
        "int32[*]",
    }
    same_matrix(matrix(ds[:]), adata.X)
    same_matrix(matrix(ds[5:12]), adata.X[5:12])
    rows = [9, 3, 3, 0, 50]
    same_matrix(matrix(ds[rows]), adata.X[rows])
    for name in adata.obs:
        assert ds[f"obs/{name}"][:].tolist() == values(adata.obs[name])
        assert ds[rows][f"obs/{name}"].tolist() == values(adata.obs[name].iloc[rows])
    assert ds["obs/_index"][:].tolist() == adata.obs_names.tolist()
    kinds = {name: str(ds.schema[f"obs/{name}"]) for name in adata.obs}
    assert kinds == {
        "cell_type": "text?", "batch": "text", "leiden": "int64", "all_missing": "text?",
        "n_counts": "float64", "doublet": "bool", "note": "text", "age": "int32?",
        "checked": "bool?", "maybe": "text?",
    }  # fmt: skip
    assert ds.where("`obs/cell_type` == 'B cell'")["obs/note"][:].tolist() == [
        f"text {i}" for i in range(0, CELLS, 4)
    ]


def test_tables_come_back_as_frames() -> None:
    adata = made()
    write(adata)
    obs = rm.open("a.h5ad", group="obs").to_pandas().set_index("_index")
    for name in ("cell_type", "batch", "leiden", "all_missing", "n_counts", "doublet"):
        pd.testing.assert_series_equal(obs[name], adata.obs[name], check_names=False)
    genes = rm.open("a.h5ad", group="var").to_pandas().set_index("_index")
    pd.testing.assert_frame_equal(genes, adata.var, check_names=False)
    assert rm.open("a.h5ad", ["var/length"])[3] == {"var/length": 3}
    assert rm.open("a.h5ad", ["obs/cell_type/codes"])[:4]["obs/cell_type/codes"].tolist() == [
        0, 1, 2, -1,
    ]  # fmt: skip


def test_strings_of_pandas_3_are_stored_with_masks() -> None:
    text = pd.StringDtype("python")
    obs = pd.DataFrame(
        {
            "kind": pd.Categorical(pd.array(["a", None, "b"], text), ordered=True),
            "flag": pd.Categorical([True, False, True]),
            "note": pd.Series(["x", "", "é"], dtype=text).array,
            "count": pd.array([1, 2, 3], "Int16"),
        },
        pd.Index(["r0", "r1", "r2"], dtype=text),
    )
    obs["note"] = obs["note"].astype(text)
    x = np.ones((3, 2), "float32")
    write(anndata.AnnData(x, obs=obs, var=pd.DataFrame(index=pd.Index(["g0", "g1"], dtype=text))))
    with h5py.File("a.h5ad") as file:
        assert {"values", "mask"} == set(file["obs/_index"]) == set(file["obs/kind/categories"])
    ds = rm.open("a.h5ad", group="obs")
    assert ds.info().origin == "from the file, which has 3 x 2 (obs x var)"
    assert str(ds.schema) == (
        "Schema(_index: text, kind: text?, flag: bool, note: text, count: int16)"
    )
    frame = ds.to_pandas().set_index("_index")
    assert frame["kind"].dtype == pd.CategoricalDtype(["a", "b"], ordered=True)
    assert values(frame["kind"]) == ["a", None, "b"]
    assert frame["flag"].dtype == pd.CategoricalDtype([False, True])
    assert frame["count"].dtype == pd.Int16Dtype()
    assert [row["note"] for row in ds] == ["x", "", "é"]
    shutil.copy("a.h5ad", "b.h5ad")
    with h5py.File("b.h5ad", "r+") as file:
        file["obs/kind/categories/mask"][0] = True
    with pytest.raises(rm.DataError, match="'obs/kind/categories' has a null among its categories"):
        rm.open("b.h5ad")


@pytest.mark.slow
def test_every_array_of_cells_is_a_column() -> None:
    rng = np.random.default_rng(1)
    adata = made(rng.random((CELLS, GENES)).astype("float32"))
    adata.layers["counts"] = counts(1)
    adata.layers["dense"] = rng.integers(0, 9, (CELLS, GENES))
    adata.obsm["X_pca"] = rng.random((CELLS, 5))
    adata.obsm["table"] = cells()[["cell_type", "n_counts"]]
    adata.obsp["near"] = sp.random(CELLS, CELLS, 0.1, "csr", random_state=1)
    adata.varm["loadings"] = rng.random((GENES, 4))
    adata.varp["near"] = np.eye(GENES)
    adata.uns["anything"] = {"a": [1, 2], "b": "text"}
    adata.raw = made(counts(2))
    write(adata)
    ds = rm.open("a.h5ad")
    assert_same(ds[:]["X"], adata.X)
    assert ds.schema["X"].shape == (GENES,)
    assert_same(ds[[4, 1]]["layers/dense"], adata.layers["dense"][[4, 1]])
    same_matrix(matrix(ds[:], "layers/counts"), adata.layers["counts"])
    same_matrix(matrix(ds[:], "obsp/near", CELLS), adata.obsp["near"])
    same_matrix(matrix(ds[:], "raw/X"), adata.raw.X)
    assert_same(ds[:]["obsm/X_pca"], adata.obsm["X_pca"])
    assert ds["obsm/table/cell_type"][:].tolist() == values(adata.obs["cell_type"])
    assert not [name for name in ds.schema if name.startswith(("var", "uns", "raw/var"))]
    assert list(rm.open("a.h5ad", group="layers").schema) == [
        "counts/data", "counts/indices", "dense",
    ]  # fmt: skip
    assert_same(rm.open("a.h5ad", ["varm/loadings"])[:]["varm/loadings"], adata.varm["loadings"])
    assert_same(rm.open("a.h5ad", group="varp")["near"][:], np.eye(GENES))
    assert len(rm.open("a.h5ad", group="raw/var")) == GENES
    with pytest.raises(rm.FieldNotFoundError, match="no column 'uns/anything/a'"):
        rm.open("a.h5ad", ["uns/anything/a"])
    with pytest.raises(rm.DataError, match="a row for each row of 'var', not of 'obs'"):
        rm.open("a.h5ad", ["X", "var/length"])
    assert "60 x 25 (obs x var)" in str(ds.info())
    assert "a sparse matrix with 25 columns" in ds.info().notes["layers/counts/data"]
    assert rm.verify("a.h5ad").ok


def test_a_matrix_without_values_has_rows() -> None:
    write(made(sp.csr_matrix((CELLS, GENES), dtype="float32")))
    ds = rm.open("a.h5ad")
    assert len(ds) == CELLS
    assert ds[3]["X/data"].tolist() == []
    write(anndata.AnnData(obs=cells()), "b.h5ad")
    assert "obs/cell_type" in rm.open("b.h5ad").schema
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        none = made()[:0].copy()
    write(none, "c.h5ad")
    assert len(rm.open("c.h5ad")) == 0


def test_matrices_by_column_are_refused_with_the_remedy() -> None:
    adata = made(counts().tocsc())
    adata.layers["more"] = counts().tocsc()
    write(adata)
    with pytest.raises(rm.DataError, match=r"stored by column \(CSC\).*tocsr\(\)") as caught:
        rm.open("a.h5ad")
    assert 'columns=["obs/*"]' in str(caught.value)
    with pytest.raises(rm.DataError, match=r"'layers/more' is stored by column"):
        rm.open("a.h5ad", ["layers/more"])
    assert len(rm.open("a.h5ad", ["obs/*"])) == CELLS
    assert "stored by column" in rm.verify("a.h5ad").damage[0].reason
    adata.X = adata.X.tocsr()
    write(adata, "new.h5ad")
    with pytest.warns(rm.LeftOutWarning, match="'layers/more' is stored by column"):
        ds = rm.open("new.h5ad")
    same_matrix(matrix(ds[:]), adata.X)


def test_it_converts_trains_and_travels() -> None:
    adata = made()
    adata.obsm["X_pca"] = np.random.default_rng(0).random((CELLS, 5))
    write(adata, compression="gzip")
    rm.convert("a.h5ad", "a.parquet", verify="full")
    again = rm.open("a.parquet")
    same_matrix(matrix(again[:]), adata.X)
    assert again["obs/age"][:].tolist() == values(adata.obs["age"])
    kind = again.select("obs/batch").to_pandas()["obs/batch"].dtype
    assert kind == adata.obs["batch"].dtype
    chosen = rm.open("a.h5ad", ["X/data", "X/indices", "obsm/X_pca"])
    copy = pickle.loads(pickle.dumps(chosen))
    same_matrix(matrix(copy[[5, 1]]), adata.X[[5, 1]])
    seen = [batch["obsm/X_pca"] for batch in chosen.cache(memory="1MB").shuffle(seed=1).batch(7)]
    assert np.allclose(sorted(np.concatenate(seen)[:, 0]), sorted(adata.obsm["X_pca"][:, 0]))
    with pytest.raises(rm.OptionError, match="reads anndata files, but does not write them"):
        again.save("b.h5ad")


@pytest.mark.slow
def test_files_of_the_same_genes_are_one_dataset() -> None:
    first, second = made(counts(1)), made(counts(2))
    second.obs["cell_type"] = pd.Categorical(["other"] * CELLS)
    write(first, "a.h5ad")
    write(second, "b.h5ad")
    ds = rm.open(["a.h5ad", "b.h5ad"])
    same_matrix(matrix(ds[:]), sp.vstack([first.X, second.X]).tocsr())
    kinds = [*values(first.obs["cell_type"]), *values(second.obs["cell_type"])]
    assert ds["obs/cell_type"][:].tolist() == kinds
    second.var_names = second.var_names[::-1]
    write(second, "c.h5ad")
    for names in (None, ["X/*"], ["X/data"], ["*"]):
        with pytest.raises(rm.DataError, match="c.h5ad: the genes of 'X' are not those of a.h5ad"):
            rm.open(["a.h5ad", "c.h5ad"], names)
    for join in (rm.concat, rm.mix):
        with pytest.raises(rm.DataError, match="c.h5ad: the genes of 'X' are not those of a.h5ad"):
            join(
                ds.rename({"obs/age": "age"}),
                rm.open("c.h5ad").rename({"obs/age": "age"}).shuffle(),
            )
        assert len(join(*(rm.open(name).select("obs/age") for name in ("a.h5ad", "c.h5ad"))))
    assert len(rm.open(["a.h5ad", "c.h5ad"], group="obs")) == 2 * CELLS


def test_tables_of_earlier_versions() -> None:
    """Categories of anndata 0.7 are in a group of their own in the table."""
    write(made())
    with h5py.File("a.h5ad", "r+") as file:
        for name in ("cell_type", "batch"):
            codes, kinds = file[f"obs/{name}/codes"][:], file[f"obs/{name}/categories"][:]
            del file[f"obs/{name}"]
            file[f"obs/__categories/{name}"] = kinds
            file[f"obs/__categories/{name}"].attrs["ordered"] = name == "batch"
            file[f"obs/{name}"] = codes
            file[f"obs/{name}"].attrs["categories"] = file[f"obs/__categories/{name}"].ref
    ds = rm.open("a.h5ad", group="obs")
    assert ds["cell_type"][:].tolist() == values(cells()["cell_type"])
    assert ds.select("batch").to_pandas()["batch"].cat.ordered
    assert not [name for name in ds.schema if "__categories" in name]


def test_files_from_before_0_7() -> None:
    """Tables are datasets with fields, and the names of categories are in ``uns``."""
    matrix_ = counts()
    obs = np.zeros(CELLS, [("index", "S9"), ("kind", "i1"), ("only", "i1"), ("n", "f4")])
    obs["index"] = [f"c{i}" for i in range(CELLS)]
    obs["kind"] = np.arange(CELLS) % 3 - 1
    var = np.zeros(GENES, [("index", "S9"), ("kind", "i8")])
    var["index"] = [f"g{i}" for i in range(GENES)]
    with h5py.File("old.h5ad", "w") as file:
        file["obs"], file["var"], file["raw.var"] = obs, var, var
        file["obsm"] = np.zeros(CELLS, [("X_pca", "f4", (3,)), ("X_umap", "f8", (2,))])
        file["varm"] = np.zeros(GENES, [("PCs", "f8", (3,))])
        for name in ("X", "raw.X"):
            for part in ("data", "indices", "indptr"):
                file[f"{name}/{part}"] = getattr(matrix_, part)
            file[name].attrs.update(h5sparse_format="csr", h5sparse_shape=matrix_.shape)
        file["uns/kind_categories"] = np.array([b"a", b"b"])
        file["uns/only_categories"] = np.array([b"one"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adata = anndata.read_h5ad("old.h5ad")
    ds = rm.open("old.h5ad")
    assert list(ds.schema)[2:] == [
        "obs/index", "obs/kind", "obs/only", "obs/n", "obsm/X_pca", "obsm/X_umap",
        "raw/X/data", "raw/X/indices",
    ]  # fmt: skip
    for name in ("kind", "only"):
        assert ds[f"obs/{name}"][:].tolist() == values(adata.obs[name])
    same_matrix(matrix(ds[:]), adata.X)
    same_matrix(matrix(ds[:], "raw/X"), adata.raw.X)
    genes = rm.open("old.h5ad", group="var")
    assert str(genes.schema["kind"]) == "int64"
    assert genes["index"][:].tolist() == adata.var_names.tolist()
    assert rm.open("old.h5ad", group="raw/var")["index"][3] == "g3"
    assert len(rm.open(["old.h5ad", "old.h5ad"])) == 2 * CELLS


def test_damage_is_reported() -> None:
    write(made())
    with h5py.File("a.h5ad", "r+") as file:
        file["obs/cell_type/codes"][5] = 9
    with pytest.raises(rm.DataError, match="'obs/cell_type' has codes from -1 to 9, and 3 cat"):
        rm.open("a.h5ad")[:]
    write(made(), "cut.h5ad")
    with h5py.File("cut.h5ad", "r+") as file:
        ends = file["X/indptr"][:-1]
        del file["X/indptr"]
        file["X/indptr"] = ends
    with pytest.raises(rm.DataError, match=r"'X' is damaged: a matrix of 60 rows has 60 offsets"):
        rm.open("cut.h5ad")
    with h5py.File("b.h5ad", "w") as file:
        file["x"] = np.arange(3)
    with pytest.raises(rm.DataError, match=r"not an AnnData file: it has no 'obs'"):
        rm.open("b.h5ad")
    assert len(rm.open("b.h5ad", format="hdf5")) == 3
    Path("c.h5ad").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    with pytest.raises(rm.DataError):
        rm.open("c.h5ad")


def test_the_command_line_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    write(made())
    assert main(["info", "a.h5ad"]) == 0
    shown = capsys.readouterr().out
    assert "anndata" in shown
    assert "cell_type" in shown
    assert main(["head", "a.h5ad", "--group", "var"]) == 0
    assert "ENSG00000" in capsys.readouterr().out


def test_files_are_read_from_a_store(bucket: Bucket) -> None:
    adata = made()
    write(adata, compression="gzip")
    path = f"{bucket.url}/a.h5ad"
    bucket.put("a.h5ad", Path("a.h5ad").read_bytes())
    ds = rm.open(path, storage=bucket.storage)
    same_matrix(matrix(ds[:]), adata.X)
    assert ds["obs/cell_type"][:].tolist() == values(adata.obs["cell_type"])
