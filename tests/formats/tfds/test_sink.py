"""Folders that ``tensorflow_datasets`` opens."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.formats.tfds.compare import assert_rows, plain

Rows = dict[str, list[dict[str, Any]]]


def columns(rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(rows)
    lengths = np.arange(rows) % 4
    ends = np.cumsum([0, *lengths])
    total = int(ends[-1])
    inner = rm.Ragged(np.arange(2 * total, dtype="int32"), np.arange(total + 1) * 2)
    return {
        "pixels": rng.integers(0, 256, (rows, 4, 3), "uint8"),
        "f64": rng.random((rows, 2)),
        "f16": rng.random((rows, 3)).astype("float16"),
        "f32": rng.random(rows).astype("float32"),
        "u64": rng.integers(0, 2**64, rows, "uint64"),
        "u32": rng.integers(0, 2**32, (rows, 20), "uint32"),
        "flag": rng.integers(0, 2, rows).astype(bool),
        "flags": rng.integers(0, 2, (rows, 9)).astype(bool),
        "nested/a": np.arange(rows),
        "nested/b/c": rng.random((rows, 2, 2)).astype("float32"),
        "tokens": rm.Ragged(np.arange(total), ends),
        "bytes": rm.Ragged(np.arange(total, dtype="uint8"), ends),
        "boxes": rm.Ragged(rng.random((total, 4)).astype("float32"), ends),
        "raw": rm.Ragged(rng.random(total), ends),
        "deep": rm.Ragged(inner, ends),
        "string": rm.Ragged.from_bytes([b"\xff" * (i % 3) for i in range(rows)]),
        "caption": rm.Ragged.from_text([f"Nr. {i} ü" for i in range(rows)]),
        "words": rm.Ragged(rm.Ragged.from_text([f"w{i}" for i in range(total)]), ends),
    }


def rows_of(batch: dict[str, Any]) -> list[dict[str, Any]]:
    count = len(batch["f32"])
    return [{name: column[i] for name, column in batch.items()} for i in range(count)]


@pytest.mark.slow
def test_tfds_reads_what_recmap_writes(
    tmp_path: Path, tfds_folder: Path, read_with_tfds: Callable[..., Rows]
) -> None:
    train, test = columns(23), columns(5)
    root = tmp_path / "data"
    rm.from_arrays(train).save(
        root, format="tfds", shards=3, verify="full", options={"name": "mine", "split": "train"}
    )
    report = rm.from_arrays(test).save(
        root / "mine/1.0.0", format="tfds", options={"split": "test"}
    )
    assert [os.path.basename(file) for file in report.files] == [
        "mine-test.tfrecord-00000-of-00001"
    ]
    media = rm.open(tfds_folder / "tfrecord/media/1.2.0")
    kept = [name for name in media.schema if name != "video"]
    media.select(kept).save(root, format="tfds", options={"name": "media2", "split": "train"})
    folder = f"{root}/mine/1.0.0"
    found = read_with_tfds(f"{folder}:train", f"{folder}:test", f"{root}/media2/1.0.0:train")
    for split, wanted in (("train", train), ("test", test)):
        again = rm.open(folder, split=split)
        assert_rows(again[:], found[f"{folder}:{split}"])
        for name, column in wanted.items():
            assert plain(again[:][name]) == plain(column), name
            assert again[:][name].dtype == column.dtype, name
    again = rm.open(root / "media2/1.0.0")
    assert again.labels == {"label": ["cat", "dog", "Ente"]}
    assert str(again.schema["words"]) == "text[*]"
    assert_rows(again[:], found[f"{root}/media2/1.0.0:train"])


def test_a_column_keeps_its_feature_until_it_is_cast(tfds_folder: Path, tmp_path: Path) -> None:
    media = rm.open(tfds_folder / "tfrecord/media/1.2.0")

    def features(ds: rm.Dataset) -> Any:
        ds.save(tmp_path, format="tfds", overwrite=True, options={"name": "m", "split": "train"})
        found = json.loads((tmp_path / "m/1.0.0/features.json").read_text())
        shutil.rmtree(tmp_path / "m")
        return found["featuresDict"]["features"]

    source = json.loads((tfds_folder / "tfrecord/media/1.2.0/features.json").read_text())
    source = source["featuresDict"]["features"]
    kept = features(media.select("image", "label", "words").rename({"image": "picture"}))
    assert kept["picture"] == source["image"]
    assert kept["label"] == source["label"]
    assert kept["words"]["sequence"]["feature"] == source["words"]["sequence"]["feature"]
    cast = features(media.select("label").cast({"label": "float32"}))
    assert cast["label"]["pythonClassName"].endswith("Tensor")


def test_splits_may_be_saved_at_once(tmp_path: Path) -> None:
    names = [f"part{i}" for i in range(8)]

    def save(split: str) -> None:
        rm.from_arrays({"x": np.arange(3)}).save(
            tmp_path, format="tfds", options={"name": "a", "split": split}
        )

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(save, names))
    assert len(rm.open(tmp_path / "a/1.0.0", split="+".join(names))) == 3 * len(names)


def test_of_splits_with_other_features_one_is_refused(tmp_path: Path) -> None:
    def rows() -> Any:
        yield {"x": np.arange(3)}
        # Another save begins and ends before this one does.
        rm.from_arrays({"y": np.ones(2)}).save(
            tmp_path, format="tfds", options={"name": "a", "split": "test"}
        )

    with pytest.raises(rm.OutputExistsError, match="features from the new split: y: float64"):
        rm.from_batches(rows()).save(
            tmp_path, format="tfds", options={"name": "a", "split": "train"}
        )
    assert list(rm.open(tmp_path / "a/1.0.0").schema) == ["y"]


def test_a_folder_appears_with_its_metadata_last(tmp_path: Path) -> None:
    def broken() -> Any:
        yield {"x": np.arange(3)}
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        rm.from_batches(broken()).save(
            tmp_path / "d", format="tfds", options={"name": "a", "split": "train"}
        )
    assert not [name for _, _, names in os.walk(tmp_path / "d") for name in names]


def test_an_interrupted_save_resumes(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(40).reshape(10, 4))
    ds = rm.open(tmp_path / "x.npy")

    def stop(progress: Any) -> None:
        if progress.rows >= 4:
            raise KeyboardInterrupt

    written = {"name": "a", "split": "train"}
    options: dict[str, Any] = {"format": "tfds", "options": written, "shards": 5}
    with pytest.raises(KeyboardInterrupt):
        ds.save(tmp_path / "d", **options, progress=stop, workers=1)
    assert not (tmp_path / "d/a/1.0.0/dataset_info.json").exists()
    report = ds.save(tmp_path / "d", **options)
    assert report.resumed > 0
    assert rm.open(tmp_path / "d/a/1.0.0")[:]["data"].tolist() == ds[:]["data"].tolist()
    assert ds.save(tmp_path / "d", **options).resumed == 5


def test_a_split_is_replaced_only_on_request(tmp_path: Path) -> None:
    def save(rows: int, **options: Any) -> Any:
        return rm.from_arrays({"x": np.arange(rows)}).save(
            tmp_path, format="tfds", options={"name": "a", "split": "train"}, **options
        )

    save(3)
    for shards in (1, 2):
        with pytest.raises(
            rm.OutputExistsError, match="already exists|has a split .train. already"
        ):
            save(5, shards=shards)
    save(5, shards=2, overwrite=True)
    folder = tmp_path / "a/1.0.0"
    assert rm.open(folder)[:]["x"].tolist() == [0, 1, 2, 3, 4]
    assert sorted(p.name for p in folder.glob("a-train*")) == [
        "a-train.tfrecord-00000-of-00002",
        "a-train.tfrecord-00001-of-00002",
    ]


def test_splits_of_one_dataset_have_the_same_features(tmp_path: Path) -> None:
    rm.from_arrays({"x": np.arange(3)}).save(
        tmp_path, format="tfds", options={"name": "a", "split": "train"}
    )
    with pytest.raises(
        rm.OutputExistsError, match="has different features from the new split: x: int64"
    ):
        rm.from_arrays({"y": np.arange(3)}).save(
            tmp_path, format="tfds", options={"name": "a", "split": "test"}
        )
    with pytest.raises(rm.OutputExistsError, match="holds 'a'"):
        rm.from_arrays({"x": np.arange(3)}).save(
            tmp_path / "a/1.0.0", format="tfds", options={"name": "b", "split": "test"}
        )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "a"}, 'format="tfds" needs options={"split": "train"}'),
        ({"split": "train"}, 'format="tfds" needs options={"name": "my_dataset"}'),
        ({"name": "A b", "split": "train"}, "give a name like 'my_dataset'"),
        ({"name": "a", "split": "train[:5]"}, "give a name like 'train'"),
        ({"name": "a", "split": "all"}, "give a name like 'train'"),
        ({"name": "a", "split": 3}, "split=3: give text"),
        ({"name": "a", "split": "train", "level": 9}, "level"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(rm.OptionError, match=re.escape(words)):
        rm.from_arrays({"x": np.arange(3)}).save(tmp_path, format="tfds", options=options)


def test_name_and_split_are_for_tfds(tmp_path: Path) -> None:
    with pytest.raises(rm.OptionError, match="split"):
        rm.from_arrays({"x": np.arange(3)}).save(tmp_path / "x.npy", options={"split": "train"})


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (np.arange(3, dtype="complex64"), "cannot hold complex64"),
        (np.arange(3).astype("M8[s]"), "cannot hold datetime64"),
        (rm.Ragged(rm.Ragged(np.arange(2.0), [0, 1, 2]), [0, 1, 2, 2]), "cannot hold float64[*,*]"),
    ],
)
def test_types_that_tfds_lacks_are_refused(tmp_path: Path, column: Any, words: str) -> None:
    with pytest.raises(rm.ColumnError, match=re.escape(words)):
        rm.from_arrays({"x": column}).save(
            tmp_path, format="tfds", options={"name": "a", "split": "train"}
        )
    assert not list(tmp_path.iterdir())


def test_a_column_is_not_also_a_group(tmp_path: Path) -> None:
    both = rm.from_arrays({"a": np.arange(3), "a/b": np.arange(3)})
    with pytest.raises(rm.ColumnError, match="columns 'a' and 'a/b'"):
        both.save(tmp_path, format="tfds", options={"name": "a", "split": "train"})
