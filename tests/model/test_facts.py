"""What sources know about their rows, and what is left of it in wrappers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import recmap as rm
from recmap.formats.combined import ConcatenatedSource, SideBySideSource
from recmap.model.facts import SourceFacts, with_facts
from recmap.model.ordered_rows import sliced
from recmap.model.source import renamed

ROWS = 200


def test_facts_about_compressed_records_do_not_count_them() -> None:
    rm.from_arrays({"x": np.arange(ROWS)}).save("x.tfrecord.gz", options={"index": False})
    source = rm.open("x.tfrecord.gz")._source
    facts = source.facts
    assert (facts.stored_in_order, list(facts.compressed_files)) == (True, ["x.tfrecord.gz"])
    assert source.known_rows() is None
    assert facts.chunk_rows() > ROWS
    assert source.known_rows() is None


@pytest.mark.parametrize("name", ["x.tfrecord", "x.npz", "x.npy", "x.h5", "x.zarr", "x.parquet"])
def test_wrappers_change_only_facts_that_they_have_to(name: str) -> None:
    rm.from_arrays({"x": np.arange(ROWS)}).save(name)
    source = rm.open(name)._source
    facts = source.facts
    for wrapped, in_order in (
        (renamed(source, {"new": "x"}), True),
        (sliced(source, slice(20, None)), False),
        (ConcatenatedSource([source]), True),
        (SideBySideSource({"x": source}), True),
    ):
        now = wrapped.facts
        assert (now.files, now.origin, now.remote) == ([name], facts.origin, False)
        assert now.chunk_rows() == facts.chunk_rows()
        assert now.largest_chunk() == facts.largest_chunk()
        assert now.stored_in_order == facts.stored_in_order
        assert now.in_order is in_order
        assert len(now.checksums) == len(facts.checksums)
        assert list(now.record_files) == list(facts.record_files)


def test_damage_is_counted_only_where_rows_keep_their_numbers() -> None:
    rm.from_arrays({"x": np.arange(ROWS)}).save("x.tfrecord")
    source = rm.open("x.tfrecord")._source
    for same in (source, source.select(["x"]), renamed(source, {"new": "x"})):
        assert same.facts.rows_before_damage is not None
    for other in (sliced(source, slice(3)), ConcatenatedSource([source, source])):
        before = other.facts.rows_before_damage
        assert before is None or before() is None


def test_changed_facts_are_those_of_replace() -> None:
    facts = SourceFacts("npy", ["a.npy"], searched=False)
    assert with_facts(facts, endless=True, files=[]) == replace(facts, endless=True, files=[])
    assert facts == SourceFacts("npy", ["a.npy"], searched=False)


def test_unknown_facts_are_refused() -> None:
    with pytest.raises(AssertionError, match="sought"):
        with_facts(SourceFacts(), sought=True)
