"""Folders that old versions of TFDS wrote, without ``features.json``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import recmap as rm
from tests import wire

FOLDER = Path("squad/1.0.0")
COUNTS = {"train": [3, 2], "validation": [4]}


@pytest.fixture(params=["lengths", "numbers"])
def old(request: pytest.FixtureRequest) -> Path:
    """Return a folder whose metadata has the rows of each shard, or only how many there are."""
    FOLDER.mkdir(parents=True)
    splits = []
    for split, counts in COUNTS.items():
        row = 0
        for i, count in enumerate(counts):
            shard = f"squad-{split}.tfrecord-{i:05}-of-{len(counts):05}"
            records = [
                wire.example(id=wire.int64_list(row + j), split=wire.bytes_list(split.encode()))
                for j in range(count)
            ]
            wire.write(FOLDER / shard, *records)
            row += count
        entry = {"name": split, "numShards": str(len(counts)), "statistics": {}}
        if request.param == "lengths":
            entry["shardLengths"] = [str(count) for count in counts]
        splits.append(entry)
    info = {"name": "squad", "version": "1.0.0", "splits": splits, "schema": {"feature": []}}
    (FOLDER / "dataset_info.json").write_text(json.dumps(info))
    (FOLDER / "id.labels.txt").write_text("no\nyes\n")
    return FOLDER


def test_each_split_is_opened_alone(old: Path) -> None:
    for split, counts in COUNTS.items():
        ds = rm.open(old, split=split)
        assert ds[:]["id"].tolist() == list(range(sum(counts)))
        assert set(ds[:]["split"]) == {split.encode()}
        assert "an old version of TFDS" in ds.info().origin
        assert ds.labels == {"id": ["no", "yes"]}
    assert rm.open(old, split="train[1:4]+validation[-1:]")[:]["id"].tolist() == [1, 2, 3, 3]
    assert len(rm.open(old, split="all")) == 9
    assert [b["id"].tolist() for b in rm.open(old, ["id"], split="validation").batch(4)] == [
        [0, 1, 2, 3]
    ]


def test_the_splits_are_never_taken_together(old: Path) -> None:
    with pytest.raises(rm.OptionError, match=r"which split.*'train'.*old version of TFDS"):
        rm.open(old)
    with pytest.raises(rm.OptionError, match=r"no split 'test'.*old version of TFDS"):
        rm.open(old, split="test")
    with pytest.raises(rm.PathNotFoundError, match="open a version of this dataset"):
        rm.open("squad", split="train")
    with pytest.raises(rm.OptionError, match=r"unit=.*features\.json"):
        rm.open(old, split="train", unit="steps")
    (old / "squad-train.tfrecord-00001-of-00002").unlink()
    with pytest.raises(rm.PathNotFoundError, match="1 is missing"):
        rm.open(old, split="train")


def test_an_old_folder_is_verified_and_converted(old: Path) -> None:
    assert rm.verify(old).records == 9
    rm.convert(old, "train.npz", split="train", fields=["id"])
    assert rm.open("train.npz")["id"][:].tolist() == [0, 1, 2, 3, 4]


def test_other_folders_with_a_dataset_info_are_not_taken_for_tfds() -> None:
    folder = Path("saved")
    folder.mkdir()
    (folder / "dataset_info.json").write_text('{"splits": {"train": {}}}')
    np.save(folder / "x.npy", np.arange(3))
    with pytest.raises(rm.UnknownFormatError, match=r"to open only the other files"):
        rm.open(folder)


@pytest.mark.parametrize("older", [True, False])
def test_a_feature_may_have_any_name(older: bool) -> None:
    names = ["type", "content", "features", "feature", "pythonClassName", "json", "length"]

    def tensor(dtype: str) -> dict[str, object]:
        kind = "tensorflow_datasets.core.features.tensor_feature.Tensor"
        if older:
            return {"type": kind, "content": {"shape": [], "dtype": dtype, "encoding": "none"}}
        content = {"shape": {}, "dtype": dtype, "encoding": "none"}
        return {"pythonClassName": kind, "tensor": content}

    def together(children: dict[str, object]) -> dict[str, object]:
        kind = "tensorflow_datasets.core.features.features_dict.FeaturesDict"
        if older:
            return {"type": kind, "content": children}
        return {"pythonClassName": kind, "featuresDict": {"features": children}}

    for chosen in ([name] for name in names):
        inner = together({name: tensor("int64") for name in chosen})
        features = together({**{name: tensor("int64") for name in chosen}, "object": inner})
        (folder := Path("data") / chosen[0] / "1.0.0").mkdir(parents=True)
        (folder / "features.json").write_text(json.dumps(features))
        splits = [{"name": "train", "shardLengths": ["1"], "numBytes": "1"}]
        info = {"name": "set", "version": "1.0.0", "fileFormat": "tfrecord", "splits": splits}
        (folder / "dataset_info.json").write_text(json.dumps(info))
        values = {name: wire.int64_list(i) for i, name in enumerate(chosen)}
        values |= {f"object/{name}": wire.int64_list(9) for name in chosen}
        wire.write(folder / "set-train.tfrecord-00000-of-00001", wire.example(**values))
        row = rm.open(folder, split="train")[0]
        assert row == {chosen[0]: 0, f"object/{chosen[0]}": 9}
