"""What a source knows about its rows, with changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recmap.model.facts import SourceFacts, with_facts


def test_changed_facts_are_those_of_replace() -> None:
    facts = SourceFacts("npy", ["a.npy"], searched=False)
    assert with_facts(facts, endless=True, files=[]) == replace(facts, endless=True, files=[])
    assert facts == SourceFacts("npy", ["a.npy"], searched=False)


def test_unknown_facts_are_refused() -> None:
    with pytest.raises(AssertionError, match="sought"):
        with_facts(SourceFacts(), sought=True)
