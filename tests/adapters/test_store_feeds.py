"""Frameworks that read rows in a store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import recmap as rm
from tests.buckets import Bucket
from tests.frameworks import keras
from tests.numbered import numbered
from tests.processes import WITH_WORKERS

pytestmark = WITH_WORKERS


@pytest.fixture
def ds(bucket: Bucket) -> rm.Dataset:
    numbered(40)
    bucket.put("x.tfrecord", Path("x.tfrecord").read_bytes())
    return rm.open(bucket.url_of("x.tfrecord"), storage=bucket.storage)


def test_jax_gets_the_rows(ds: rm.Dataset) -> None:
    batches = ds.select("x").shuffle(seed=1).batch(8).to_jax()
    found = np.concatenate([batch["x"] for batch in batches])
    expected = rm.open("x.tfrecord").shuffle(seed=1).batch(40)
    assert np.array_equal(found, next(iter(expected))["x"])


def test_keras_trains_with_threads(ds: rm.Dataset) -> None:
    pipeline = ds.select("x", "y").shuffle(seed=1).batch(8)
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    model.compile(loss="mse")
    model.fit(pipeline.to_keras(features="x", label="y", workers=2), verbose=0)


def test_forked_processes_of_keras_are_refused(ds: rm.Dataset) -> None:
    with pytest.raises(rm.OptionError, match=r'cannot read from a store; .*\("spawn"\)'):
        ds.select("x", "y").batch(8).to_keras(features="x", label="y", workers="processes:2")
