"""Steps that become episodes of RLDS, and RLDS that becomes LeRobot and comes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.formats.robot_steps import LENGTHS, STEPS, TOP, columns, pixels_of
from tests.formats.tfds.compare import plain

LEROBOT = {"fps": 10}


def rlds(folder: Path, name: str = "robot") -> Path:
    steps = rm.from_arrays({n: c for n, c in columns().items() if n != "step"})
    options = {"name": name, "split": "train", "episodes": "episode"}
    steps.save(folder, format="tfds", shards=2, options=options, verify="full")
    return folder / f"{name}/1.0.0"


def test_steps_become_episodes_of_rlds(tmp_path: Path) -> None:
    given, folder = columns(), rlds(tmp_path)
    episodes = rm.open(folder, split="train", unit="episodes")
    assert len(episodes) == len(LENGTHS)
    assert episodes["steps/is_first"][:].lengths.tolist() == list(LENGTHS)
    steps = rm.open(folder, split="train", unit="steps")
    assert set(steps.schema) == {*given, "is_first", "is_last"}
    found = steps[:]
    for name, column in given.items():
        assert plain(found[name]) == plain(column), name
    assert found["is_last"].tolist() == (np.diff([*given["episode"], -1]) != 0).tolist()
    content = json.loads((folder / "features.json").read_text())["featuresDict"]["features"]
    assert content["steps"]["pythonClassName"].endswith("dataset_feature.Dataset")
    nested = content["steps"]["sequence"]["feature"]["featuresDict"]["features"]
    cameras = nested["observation"]["featuresDict"]["features"]["images"]["featuresDict"]
    assert cameras["features"]["wrist"]["image"]["encodingFormat"] == "jpeg"


def test_rlds_to_lerobot_and_back(tmp_path: Path) -> None:
    folder = rlds(tmp_path)
    rm.convert(folder, tmp_path / "robot", split="train", unit="steps", format="lerobot",
               shards=2, options=LEROBOT)  # fmt: skip
    options = {"name": "again", "split": "train", "episodes": "episode_index"}
    rm.convert(tmp_path / "robot", tmp_path, format="tfds", options=options)
    before = rm.open(folder, split="train", unit="steps")[:]
    after = rm.open(tmp_path / "again/1.0.0", split="train", unit="steps")[:]
    renamed = {"language_instruction": "task", "step": "frame_index"}
    for name, column in before.items():
        assert plain(after[renamed.get(name, name)]) == plain(column), name
    # An episode that is kept whole is a record, also in a copy of the folder.
    copied = {"name": "copy", "split": "train"}
    rm.open(folder, split="train").save(tmp_path, format="tfds", options=copied)
    assert (tmp_path / "copy/1.0.0/features.json").read_text() == (
        folder / "features.json"
    ).read_text()


def test_episodes_of_rlds_are_opened_by_their_steps(tmp_path: Path) -> None:
    with pytest.raises(rm.OptionError, match='open it with unit="steps"'):
        rm.open(rlds(tmp_path), split="train").save(
            tmp_path / "out", format="lerobot", options=LEROBOT
        )


@pytest.mark.parametrize(
    ("change", "options", "reason"),
    [
        ({}, {"episodes": "nope"}, "no column 'nope'"),
        ({}, {"episodes": 1}, "episodes=1: give the name of a column"),
        ({"episode": np.arange(STEPS) % 3}, {}, "episode 0 goes on here"),
        ({"a.b": np.arange(STEPS), "a/b": np.arange(STEPS)}, {}, "would be 'steps/a/b'"),
    ],
)
def test_what_is_not_an_episode_of_rlds_is_refused(
    tmp_path: Path, change: dict[str, Any], options: dict[str, Any], reason: str
) -> None:
    told = {"name": "x", "split": "train", "episodes": "episode", **options}
    with pytest.raises(rm.RecmapError, match=reason):
        rm.from_arrays({**columns(), **change}).save(tmp_path, format="tfds", options=told)


def test_an_episode_larger_than_the_memory_is_refused(tmp_path: Path) -> None:
    steps = rm.from_arrays({"episode": np.repeat([0, 1], [9, 400]), "x": np.ones((409, 50_000))})
    told = {"name": "x", "split": "train", "episodes": "episode"}
    with pytest.raises(rm.MemoryLimitError, match="memory="):
        steps.save(tmp_path, format="tfds", options=told, memory="64MB")


def test_a_group_of_steps_has_as_many_of_all(tmp_path: Path) -> None:
    ragged = rm.Ragged.from_rows([[1, 2], [3]]), rm.Ragged.from_rows([[1], [3, 4]])
    ds = rm.from_arrays({"steps/a": ragged[0], "steps/b": ragged[1]})
    with pytest.raises(rm.ColumnError, match="'steps/a' and 'steps/b': a row has 2 and 1 items"):
        ds.save(tmp_path, format="tfds", options={"name": "x", "split": "train"})


@pytest.mark.slow
def test_tfds_reads_the_episodes(
    tmp_path: Path, read_with_tfds: Callable[..., dict[str, list[dict[str, Any]]]]
) -> None:
    given, folder = columns(), rlds(tmp_path)
    (found,) = read_with_tfds(f"{folder}:train").values()
    assert [len(episode["steps"]) for episode in found] == list(LENGTHS)
    steps = [step for episode in found for step in episode["steps"]]
    for row, step in enumerate(steps):
        for name in ("action", "grid", "reward", "is_terminal", "note"):
            assert plain(step[name]) == plain(given[name][row]), name
        assert plain(step["observation"]["state"]) == plain(given["observation/state"][row])
        top = pixels_of(given[TOP][row])
        assert (step["observation"]["images"]["top"] == top).all()
