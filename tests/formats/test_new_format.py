"""A new format costs one module and one line in the table."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import recmap as rm
from recmap.formats.registry import FORMATS, Format
from recmap.formats.sink import Sink
from recmap.local.output import Output
from recmap.model.facts import SourceFacts
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source

MAGIC = b"TOY1"


class ToySource(Source):
    """Integers as text, one per line."""

    def __init__(self, path: str) -> None:
        self._path = path
        with open(path, "rb") as file:
            self._values = np.array(file.read()[len(MAGIC) :].split(), np.int64)

    @property
    def schema(self) -> Schema:
        return Schema({"number": "int64"})

    @property
    def facts(self) -> SourceFacts:
        return SourceFacts("toy", [self._path])

    def __len__(self) -> int:
        return len(self._values)

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        rows = stop - start if limit is None else min(stop - start, max(1, limit // 8))
        return {"number": self._values[start : start + rows]}

    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        return {"number": self._values[rows]}


class ToySink(Sink):
    def __init__(self, output: Output, schema: Schema) -> None:
        super().__init__(output, schema)
        self._stream = output.stream()
        self._stream.write(MAGIC)

    def write(self, batch: Mapping[str, Any]) -> None:
        self._stream.write(b"".join(b"\n%d" % value for value in batch["number"]))

    def end(self) -> None:
        self._stream.write(b"\n")


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("recmap.formats.toy")
    module.__dict__.update(open_toy=ToySource, ToySink=ToySink)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    line = Format("toy", (".toy",), "toy:open_toy", "toy:ToySink", magic=MAGIC)
    monkeypatch.setitem(FORMATS, "toy", line)


def test_it_is_written_and_read_like_any_other() -> None:
    numbers = np.arange(100) ** 2
    report = rm.from_arrays({"number": numbers}).save("squares.toy")
    assert report.rows == 100
    assert os.listdir() == ["squares.toy"]
    ds = rm.open("squares.toy")
    assert (len(ds), ds.schema["number"]) == (100, rm.Field("int64"))
    assert ds[7] == {"number": 49}
    assert np.array_equal(ds[10:20]["number"], numbers[10:20])
    assert np.array_equal(ds[[3, 1]]["number"], [9, 1])
    assert np.array_equal(np.asarray(ds["number"]), numbers)
    assert ds.info().size == os.path.getsize("squares.toy")
    rm.convert("squares.toy", "squares.npy", verify="full")
    assert np.array_equal(np.load("squares.npy"), numbers)


def test_it_is_recognized_by_its_first_bytes() -> None:
    rm.from_arrays({"number": np.arange(3)}).save("a.toy")
    os.rename("a.toy", "a.txt")
    assert len(rm.open("a.txt")) == 3


def test_a_format_that_is_only_read_needs_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Format("old", (".old",), "toy:open_toy", magic=b"\n25\n", magic_offset=len(MAGIC) + 11)
    monkeypatch.setitem(FORMATS, "old", line)
    monkeypatch.delitem(FORMATS, "toy")
    Path("a.txt").write_bytes(MAGIC + b"\n0\n1\n4\n9\n16\n25\n")
    assert rm.open("a.txt")[5] == {"number": 25}
    assert rm.convert("a.txt", "a.npy", verify="full").rows == 6
    with pytest.raises(rm.OptionError, match="reads old files, but does not write them"):
        rm.convert("a.txt", "b.old")
    with pytest.raises(rm.OptionError, match='use one of "tfrecord"'):
        rm.open("a.txt").save("b", format="old")
    assert sorted(os.listdir()) == ["a.npy", "a.npy.recmap.json", "a.txt"]


def test_many_files_are_combined_and_used_for_training() -> None:
    for i in range(3):
        rm.from_arrays({"number": np.arange(10 * i, 10 * i + 10)}).save(f"{i}.toy")
    ds = rm.open("*.toy")
    batches = [batch["number"] for batch in ds.shuffle(seed=1).batch(8)]
    assert sorted(np.concatenate(batches)) == list(range(30))
    both = rm.open({"number": "*.toy", "half": np.arange(30) / 2})
    assert both[21] == {"number": 21, "half": 10.5}
    parts = ds.split({"train": 0.5, "val": 0.5})
    assert sorted([*parts["train"][:]["number"], *parts["val"][:]["number"]]) == list(range(30))


def test_options_without_a_parameter_are_refused() -> None:
    rm.from_arrays({"number": np.arange(3)}).save("a.toy")
    with pytest.raises(rm.OptionError, match="a.toy is toy"):
        rm.open("a.toy", compression="gzip")
    with pytest.raises(rm.OptionError, match="options of toy files"):
        rm.from_arrays({"number": np.arange(3)}).save("b.toy", options={"level": 9})
