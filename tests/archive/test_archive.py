"""What earlier versions wrote is read as it was, down to indexes, manifests and states."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.archive.make import CHAINS, HERE, TIME, UNFINISHED, files_in, numbers, plain

VERSIONS = sorted(path.parent for path in Path(__file__).parent.glob("*/expected.json"))


@pytest.fixture(params=VERSIONS, ids=lambda path: path.name)
def expected(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Go to a copy of the folder of a version, with the times and paths it was written with."""
    here = tmp_path / "archive"
    shutil.copytree(request.param, here)
    for file in files_in(here):
        if "manifest.json" in file.name:
            file.write_text(file.read_text("utf-8").replace(HERE, str(here)), "utf-8")
        os.utime(file, ns=(TIME, TIME))
    os.chdir(here)
    made: dict[str, Any] = json.loads(Path("expected.json").read_text("utf-8"))
    return made


def test_every_file_has_the_rows_and_the_schema_it_had(expected: dict[str, Any]) -> None:
    before = {file: file.read_bytes() for file in files_in(Path())}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, file in expected["files"].items():
            ds = rm.open(name, **file["open"])
            assert {name: str(field) for name, field in ds.schema.items()} == file["schema"], name
            assert plain([dict(row) for row in ds]) == file["rows"], name
            picked = ds[np.array([4, 0, 3])]
            for column, values in picked.items():
                rows = [file["rows"][i][column] for i in (4, 0, 3)]
                assert plain(values) == rows, (name, column)
            assert file["open"] or rm.verify(name).ok, name
    assert {file: file.read_bytes() for file in files_in(Path())} == before


def test_indexes_are_still_good(expected: dict[str, Any]) -> None:
    assert "plain.tfrecord" in expected["files"]
    indexed = [file for file in files_in(Path()) if file.name.endswith(".recmap")]
    assert len(indexed) > 8
    offsets = Path("plain.tfrecord.idx").read_text().split()
    before = {file: file.read_bytes() for file in indexed}
    for file in indexed:
        rm.index(file.with_name(file.name[1:].removesuffix(".recmap")))
    rm.index("plain.tfrecord", text=True)
    assert {file: file.read_bytes() for file in indexed} == before
    assert Path("plain.tfrecord.idx").read_text().split() == offsets


def test_a_conversion_that_was_broken_off_is_resumed(expected: dict[str, Any]) -> None:
    assert expected["version"]
    kept = Path("unfinished/data-00001-of-00006.tfrecord")
    place = kept.stat().st_ino
    rm.convert("many.tfrecord", "unfinished/", **UNFINISHED)
    assert kept.stat().st_ino == place  # what was finished is not written again
    whole = rm.open("unfinished/")
    assert plain(whole[:]["t"]) == plain(rm.open("many.tfrecord")[:]["t"])
    assert plain(whole[:]["x"]) == list(range(60))


def test_states_go_on_where_they_were_saved(expected: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, saved in expected["states"].items():
            pipeline = CHAINS[name](rm.open("many.tfrecord")).restore(saved["state"])
            assert [numbers(batch) for batch in pipeline] == saved["rest"], name
    # The rest of two ranks, on one.
    ranks = [expected["states"][f"rank {rank}"] for rank in range(2)]
    alone = rm.open("many.tfrecord").shuffle(seed=1).batch(4)
    alone.restore([rank["state"] for rank in ranks])
    left = sorted(x for rank in ranks for batch in rank["rest"] for x in batch[0])
    assert sorted(x for batch in alone for x in batch["x"].tolist()) == left


def test_states_of_torch_go_on_where_they_were_saved(expected: dict[str, Any]) -> None:
    pytest.importorskip("torch")
    saved = expected["torch"]
    loader: Any = rm.open("many.tfrecord").shuffle(seed=1).select("x").batch(4).to_torch()
    loader.load_state_dict(saved["state"])
    assert [batch["x"].tolist() for batch in loader] == saved["rest"]
