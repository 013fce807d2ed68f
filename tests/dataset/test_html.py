"""How datasets, schemas and pipelines look in a notebook."""

from __future__ import annotations

import numpy as np

import recmap as rm


def _dataset() -> rm.Dataset:
    return rm.from_arrays({"<x>": np.zeros((5, 2), np.float32), "y": np.arange(5)})


def test_a_dataset_is_shown_as_a_table_of_its_fields() -> None:
    html = _dataset()._repr_html_()
    assert "<b>Dataset: in memory: 5 rows" in html
    assert "<tr><td>y</td><td>int64</td></tr>" in html


def test_names_are_escaped() -> None:
    assert "<td>&lt;x&gt;</td><td>float32[2]</td>" in _dataset().schema._repr_html_()


def test_a_pipeline_is_shown_as_a_table_of_its_verbs() -> None:
    html = _dataset().shuffle(seed=1).batch(2)._repr_html_()
    assert "<b>Pipeline: 5 rows</b>" in html
    assert "<td>2</td><td>batch 2</td>" in html
