"""The steps of episodes as rows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.formats.tfds import steps
from tests.formats.tfds.compare import assert_rows, flat, plain

Rows = dict[str, list[dict[str, Any]]]
IMAGE = "observation/image"


@pytest.fixture(params=["tfrecord", "array_record"])
def folder(request: pytest.FixtureRequest, tfds_folder: Path) -> Path:
    return tfds_folder / str(request.param) / "rlds/1.2.0"


def steps_of(episodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each step, with what its episode has once."""
    rows = []
    for number, episode in enumerate(episodes):
        outer = flat({name: value for name, value in episode.items() if name != "steps"})
        for place, step in enumerate(episode["steps"]):
            rows.append({**flat(step), **outer, "episode": number, "step": place})
    return rows


def test_every_step_is_a_row(folder: Path, expected: Rows) -> None:
    ds = rm.open(folder, split="train", unit="steps")
    wanted = steps_of(expected["rlds:train"])
    assert len(ds) == len(wanted)
    assert {name: str(field) for name, field in ds.schema.items()} == {
        "episode": "int64",
        "step": "int64",
        "action": "float64[2]",
        "codes": "int64[3]",
        "is_first": "bool",
        "is_last": "bool",
        "is_terminal": "bool",
        "language": "text",
        IMAGE: "bytes",
        "observation/path": "float32[*]",
        "observation/state": "float32[7]",
        "reward": "float32",
        "episode_metadata/file": "text",
        "episode_metadata/seed": "int64",
    }
    names = [name for name in ds.schema if name != IMAGE]  # TFDS decodes it
    assert_rows(ds[:], wanted, names)
    order = np.random.default_rng(2).integers(0, len(ds), 100)
    assert_rows(ds[order], [wanted[i] for i in order], names)
    for name in names:
        assert plain(ds[name][:]) == plain(ds[:][name])


def test_images_are_those_of_their_steps(tfds_folder: Path) -> None:
    folder = tfds_folder / "tfrecord/rlds/1.2.0"
    steps = rm.open(folder, split="train", unit="steps")[:]
    episodes = rm.open(folder, split="train", unit="episodes")[:]
    images = episodes[f"steps/{IMAGE}"]
    for image, episode, step in zip(steps[IMAGE], steps["episode"], steps["step"], strict=True):
        assert image == images[episode][step]
        assert image[:4] == b"\x89PNG"


def test_a_shuffle_goes_over_all_steps_of_all_episodes(folder: Path, expected: Rows) -> None:
    ds = rm.open(folder, split="train", unit="steps")
    wanted = steps_of(expected["rlds:train"])
    found: list[tuple[int, int, str]] = []
    for batch in ds.select("episode", "step", "language").shuffle(seed=3).batch(7):
        found += zip(batch["episode"].tolist(), batch["step"].tolist(), batch["language"],
                     strict=True)  # fmt: skip
    places = [(row["episode"], row["step"], row["language"].decode()) for row in wanted]
    assert found != places
    assert sorted(found) == places


def test_episodes_are_numbered_within_the_split_that_was_opened(
    tfds_folder: Path, expected: Rows
) -> None:
    folder = tfds_folder / "tfrecord/rlds/1.2.0"
    ds = rm.open(folder, split="train[2:5]+train[1:2]", unit="steps")
    train = expected["rlds:train"]
    wanted = steps_of([*train[2:5], train[1]])
    assert_rows(ds[:], wanted, ["episode", "step", "language", "observation/path"])
    assert len(rm.open(folder, split="all", unit="steps")) > len(steps_of(train))
    assert len(rm.open(folder, split="train[3:3]", unit="steps")) == 0


@pytest.fixture
def copied(tfds_folder: Path, tmp_path: Path) -> Path:
    """Return a copy, to be changed."""
    shutil.copytree(tfds_folder / "tfrecord/rlds/1.2.0", tmp_path / "rlds/1.2.0")
    return tmp_path / "rlds/1.2.0"


def test_flags_are_computed_where_a_dataset_has_none(copied: Path) -> None:
    wanted = rm.open(copied, split="train", unit="steps")[:]
    content = json.loads((copied / "features.json").read_text())
    steps = content["featuresDict"]["features"]["steps"]["sequence"]["feature"]
    for name in ("is_first", "is_last"):
        del steps["featuresDict"]["features"][name]
    (copied / "features.json").write_text(json.dumps(content))
    found = rm.open(copied, ["is_last", "is_first", "reward"], split="train", unit="steps")[:]
    for name in found:
        assert found[name].tolist() == wanted[name].tolist()


def test_steps_may_be_counted_one_episode_at_a_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = rm.open(folder, split="train", unit="steps")[:]
    monkeypatch.setattr(steps, "_COUNTED_BYTES", 1)
    again = rm.open(folder, split="train", unit="steps")
    for name in ("episode", "step", "is_last"):
        assert again[name][:].tolist() == whole[name].tolist()


def test_steps_are_not_counted_by_a_feature_that_records_lack(copied: Path) -> None:
    text = (copied / "features.json").read_text()
    text = text.replace('"is_first"', '"no_first"').replace('"is_last"', '"no_last"')
    (copied / "features.json").write_text(text.replace('"is_terminal"', '"no_terminal"'))
    with pytest.raises(rm.DataError, match="record 0 of this split has 0 steps in .*, but 1 in"):
        len(rm.open(copied, split="train", unit="steps"))


def test_a_step_has_one_crc_check_of_its_episode(copied: Path) -> None:
    folder = copied
    shard = folder / "rlds-train.tfrecord-00000-of-00003"
    ds = rm.open(folder, split="train", unit="steps")
    intact = ds[0]["observation/state"]
    data = shard.read_bytes()
    at = data.index(intact.tobytes())
    with open(shard, "r+b") as file:
        file.seek(at)
        file.write(b"\xff")
    # The first episode was checked when its first step was read; a new dataset checks it again.
    assert ds[0]["observation/state"][0] != intact[0]
    with pytest.raises(rm.CorruptRecordError, match="00000-of-00003: record 0"):
        rm.open(folder, split="train", unit="steps")[0]
    assert len(rm.open(folder, split="train", unit="steps", verify=False)[:]["step"]) == len(ds)


def test_columns_of_unequal_length_are_refused(copied: Path) -> None:
    folder = copied
    shard = folder / "rlds-train.tfrecord-00000-of-00003"
    batch = rm.open(shard)[:]
    reward = batch["steps/reward"]
    short = rm.Ragged(reward.flat[:-1], [*reward.offsets[:-1], reward.offsets[-1] - 1])
    with rm.TFRecordWriter(shard, overwrite=True) as w:
        w.write({**batch, "steps/reward": short})
    ds = rm.open(folder, split="train", unit="steps")
    last = int(reward.offsets[-1]) - 1
    assert ds[last - 1]["reward"] >= 0
    with pytest.raises(rm.DataError, match="steps/reward"):
        ds[last]["reward"]


def test_steps_are_saved_in_little_memory(tfds_folder: Path, tmp_path: Path) -> None:
    ds = rm.open(tfds_folder / "tfrecord/rlds/1.2.0", split="train", unit="steps")
    ds.save(tmp_path / "steps.npz", memory="16MB", verify="full")
    again = rm.open(tmp_path / "steps.npz")[:]
    assert plain(again["observation/path"]) == plain(ds[:]["observation/path"])
    assert plain(again[IMAGE]) == plain(ds[:][IMAGE])


def test_a_dataset_without_steps_has_no_units(tfds_folder: Path) -> None:
    for unit in ("steps", "episodes"):
        with pytest.raises(rm.OptionError, match=f'unit="{unit}" is for datasets of episodes'):
            rm.open(tfds_folder / "tfrecord/plain/1.2.0", split="train", unit=unit)
