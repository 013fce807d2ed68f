"""The example in the README runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


def test_the_first_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    exec(blocks[0], {})
    assert capsys.readouterr().out.splitlines() == [
        "100000 Schema(data: float32[10], label: int64) 7 (3, 10)",
        "True True",
    ]
