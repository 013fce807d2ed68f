"""Both programs of each pair on the page "Change one line" give the same."""

from __future__ import annotations

import warnings
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from tests.docs.pages import ROOT, blocks, run_python
from tests.formats.mds_files import write_mds

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "train" / "change-one-line.md"
# Its own library cannot be installed beside the others.
MOSAIC = "Mosaic Streaming"


def heading(line: int) -> str:
    above = PAGE.read_text(encoding="utf-8").splitlines()[:line]
    return [text.removeprefix("## ") for text in above if text.startswith("## ")][-1:][0]


def test_both_programs_of_a_pair_print_the_same() -> None:
    warnings.simplefilter("ignore")  # the libraries warn of their own code
    rows = [{"x": row} for row in np.random.default_rng(0).random((100, 8), np.float32)]
    write_mds("mds", {"x": "ndarray:float32:8"}, [rows[:50], rows[50:]])
    names: dict[str, Any] = {"__name__": "__main__"}
    printed: dict[str, list[str]] = defaultdict(list)
    first, *pairs = [block for block in blocks(PAGE) if block.language in ("python", "py")]
    run_python(first, PAGE, names)
    for block in pairs:
        pair = heading(block.line)
        if block.language == "python":
            printed[pair].append(run_python(block, PAGE, names))
            assert block.output in (None, printed[pair][-1]), pair
        elif "streaming" not in block.code:
            assert pair == MOSAIC
            run_python(block, PAGE, names)
            assert next(iter(names["train"]))["x"].shape == (64, 8)
    assert len(printed) == 6
    for pair, (before, after) in printed.items():
        assert before == after != "", pair
