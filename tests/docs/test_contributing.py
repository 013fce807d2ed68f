"""What CONTRIBUTING and the docstrings it names say about the code is true."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import recmap as rm
from recmap.conversion import engine
from recmap.pipeline import executor

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")


def block(text: str) -> str:
    """Return the Python block of the guide that contains a text."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    (found,) = [each for each in blocks if text in each]
    return str(found)


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (GUIDE, ["", "src/recmap/", "src/recmap/pipeline/"]),
        (executor.__doc__, ["src/recmap/", "src/recmap/pipeline/"]),
        (engine.__doc__, ["src/recmap/", "src/recmap/conversion/"]),
    ],
    ids=["CONTRIBUTING", "executor", "engine"],
)
def test_every_file_that_is_named_exists(text: str, places: list[str]) -> None:
    made_by_the_reader = {
        "pipeline/transforms/scale.py",
        "script.py",
        "tests/pipeline/test_scale.py",
    }
    prose = re.sub("```.*?```", "", text, flags=re.DOTALL)
    named = set(re.findall(r"[\w/]+\.(?:py|cc|h)\b", prose)) - made_by_the_reader
    assert named
    lost = [file for file in named if not any((ROOT / place / file).exists() for place in places)]
    assert lost == []


def test_a_padded_batch_passes_ten_files_at_most() -> None:
    story = (
        (executor.__doc__ or "").split("Follow one padded batch")[1].split("(Rows are padded")[0]
    )
    files = set(re.findall(r"[\w/]+\.py\b", story))
    assert 5 < len(files | {"executor.py"}) <= 10


def test_the_example_of_a_verb_works() -> None:
    code = block("class Scale(Transform)")
    made: dict[str, Any] = {}
    exec(compile(code, "scale.py", "exec"), made)
    scale = made["Scale"]
    p: Any = rm.from_arrays({"x": [1, 2, 3], "t": [[1], [], [2, 3]]}).pipeline()
    scaled = p._transformed(scale("x", 1.5), ("scale", "x", 1.5))
    assert scaled.schema["x"].dtype == "float64"
    assert [row["x"] for row in scaled] == [1.5, 3.0, 4.5]
    with pytest.raises(rm.OptionError, match="it takes dense numbers"):
        list(p._transformed(scale("t", 1.5), ("scale", "t", 1.5)))
    with pytest.raises(rm.FieldNotFoundError, match="there are: x, t"):
        list(p._transformed(scale("z", 1.5), ("scale", "z", 1.5)))
