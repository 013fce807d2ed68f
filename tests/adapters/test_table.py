"""What each adapter makes of a batch, as the table in ``recmap.adapters`` says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.frameworks import jax, tf, torch

pytestmark = pytest.mark.filterwarnings("ignore:JAX converts numbers to 32 bits")


@pytest.fixture
def ds() -> rm.Dataset:
    return rm.from_arrays(
        {
            "dense": np.arange(8.0).reshape(4, 2),
            "ragged": rm.Ragged.from_rows([[1], [2, 3], [], [4]]),
            "bytes": [b"a", b"bc", b"", b"d"],
            "text": rm.Ragged.from_text(["a", "é", "", "漢"]),
            "date": np.array(["2024-01-01"] * 4, "M8[D]"),
            "y": np.arange(4),
        }
    )


def first(batches: Any) -> Any:
    return next(iter(batches))


ADAPTERS = ["to_torch", "to_tf", "to_keras", "to_jax"]
KINDS: dict[str, Any] = {
    "to_torch": lambda: torch.Tensor,
    "to_tf": lambda: tf.Tensor,
    "to_keras": lambda: np.ndarray,
    "to_jax": lambda: jax.Array,
}


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_dense_columns_are_arrays_of_the_framework(ds: rm.Dataset, adapter: str) -> None:
    dense = first(getattr(ds.batch(4), adapter)(features=["dense"]))["dense"]
    assert isinstance(dense, KINDS[adapter]())
    assert np.asarray(dense).tolist() == np.arange(8.0).reshape(4, 2).tolist()


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_dates_are_integers(ds: rm.Dataset, adapter: str) -> None:
    date = first(getattr(ds.batch(4), adapter)(features="date"))
    assert np.asarray(date).dtype.kind == "i"
    assert np.asarray(date).tolist() == [19723] * 4


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_label_makes_pairs_and_none_a_dict(ds: rm.Dataset, adapter: str) -> None:
    batches = ds.select("dense", "date", "y").batch(4)
    assert list(first(getattr(batches, adapter)())) == ["dense", "date", "y"]
    features, label = first(getattr(batches, adapter)(label="y"))
    assert list(features) == ["dense", "date"]
    assert np.asarray(label).tolist() == [0, 1, 2, 3]
    features, label = first(getattr(batches, adapter)(features="dense", label="y"))
    assert isinstance(features, KINDS[adapter]())
    assert isinstance(label, KINDS[adapter]())


def test_only_keras_takes_sample_weights(ds: rm.Dataset) -> None:
    batches: Any = ds.batch(4)
    how = {"features": "dense", "label": "y", "sample_weight": "y"}
    assert len(batches.to_keras(**how)[0]) == 3
    for adapter in ("to_torch", "to_tf", "to_jax"):
        with pytest.raises(TypeError, match="sample_weight"):
            getattr(batches, adapter)(**how)


def test_ragged_columns_of_pytorch(ds: rm.Dataset) -> None:
    batches = ds.batch(4)
    nested = first(batches.to_torch(features="ragged"))
    assert nested.layout == torch.jagged
    assert [row.tolist() for row in nested.unbind()] == [[1], [2, 3], [], [4]]
    rows = first(batches.to_torch(features="ragged", ragged="list"))
    assert [row.tolist() for row in rows] == [[1], [2, 3], [], [4]]
    parts = first(batches.to_torch(features="ragged", ragged="parts"))
    assert (parts.values.tolist(), parts.offsets.tolist()) == ([1, 2, 3, 4], [0, 1, 3, 3, 4])


def test_ragged_columns_of_tensorflow(ds: rm.Dataset) -> None:
    ragged = first(ds.batch(4).to_tf(features="ragged"))
    assert isinstance(ragged, tf.RaggedTensor)
    assert ragged.to_list() == [[1], [2, 3], [], [4]]
    padded = first(ds.batch(4).to_tf(features="ragged", ragged=False))
    assert padded.numpy().tolist() == [[1, 0], [2, 3], [0, 0], [4, 0]]


def test_byte_strings_of_pytorch_and_tensorflow(ds: rm.Dataset) -> None:
    assert first(ds.batch(4).to_torch(features="bytes")) == [b"a", b"bc", b"", b"d"]
    strings = first(ds.batch(4).to_tf(features="bytes"))
    assert strings.dtype == tf.string
    assert strings.numpy().tolist() == [b"a", b"bc", b"", b"d"]


def test_text_of_pytorch_and_tensorflow(ds: rm.Dataset) -> None:
    texts = ["a", "é", "", "漢"]
    assert first(ds.batch(4).to_torch(features="text")) == texts
    assert [row["text"] for row in ds.to_torch()] == texts
    strings = first(ds.batch(4).to_tf(features="text"))
    assert strings.dtype == tf.string
    assert strings.numpy().tolist() == [text.encode() for text in texts]
    assert [row["text"].numpy().decode() for row in ds.to_tf()] == texts


@pytest.mark.parametrize("adapter", ["to_keras", "to_jax"])
def test_ragged_columns_are_refused_unless_they_are_padded(ds: rm.Dataset, adapter: str) -> None:
    with pytest.raises(rm.OptionError, match="column 'ragged': rows differ in length; pad them"):
        getattr(ds.batch(4), adapter)(features="ragged")
    padded = getattr(ds.batch(4, pad={"ragged": "longest"}), adapter)(features="ragged")
    assert np.asarray(first(padded)).tolist() == [[1, 0], [2, 3], [0, 0], [4, 0]]


@pytest.mark.parametrize("adapter", ["to_keras", "to_jax"])
@pytest.mark.parametrize("strings", ["bytes", "text"])
def test_strings_are_refused(ds: rm.Dataset, adapter: str, strings: str) -> None:
    with pytest.raises(rm.OptionError, match=f"column '{strings}': .*leave it out with select"):
        getattr(ds.batch(4), adapter)(features=strings)
