"""TFDS folders, read as ``tensorflow_datasets`` reads them."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.formats.tfds.compare import assert_rows, flat, plain

Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture
def copied(tfds_folder: Path, tmp_path: Path) -> Path:
    """Return a copy of a dataset, to be damaged."""
    shutil.copytree(tfds_folder / "tfrecord/plain/1.2.0", tmp_path / "plain/1.2.0")
    return tmp_path / "plain/1.2.0"


def change(path: Path, *changes: tuple[str, str]) -> None:
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


@pytest.mark.parametrize("name", ["plain", "media", "nested", "rlds"])
def test_every_column_has_the_values_that_tfds_reads(
    tfds_folder: Path, expected: Rows, name: str
) -> None:
    ds = rm.open(tfds_folder / "tfrecord" / name / "1.2.0", split="train")
    wanted = expected[f"{name}:train"]
    names = set(flat(wanted[-1]))
    skipped = {"steps/observation/image"} if name == "rlds" else set()  # decoded by TFDS
    assert set(ds.schema) == names
    assert_rows(ds[:], wanted, [column for column in ds.schema if column not in skipped])
    order = np.random.default_rng(0).permutation(len(ds))
    assert_rows(ds[order], [wanted[i] for i in order], [c for c in ds.schema if c not in skipped])
    for column in ds.schema:
        alone = ds[column][:]
        assert plain(alone) == plain(ds[:][column]), column


def test_the_schema_is_that_of_the_metadata(tfds_folder: Path) -> None:
    kinds = {
        name: {column: str(field) for column, field in rm.open(
            tfds_folder / "tfrecord" / name / "1.2.0", split="train").schema.items()}
        for name in ("plain", "media", "nested")
    }  # fmt: skip
    assert kinds["plain"] == {
        "any": "int64[*]",
        "f16": "float16[3]",
        "f32": "float32[2,3]",
        "f64": "float64",
        "flag": "bool",
        "grid": "float32[*,*,2]",
        "i32": "int32",
        "late": "float32[*,*]",
        "nested/deep/y": "float32[2]",
        "nested/x": "int64",
        "packed": "int16[6,2]",
        "packed_any": "uint16[*]",
        "pairs": "float32[*,2]",
        "raw": "float64[3,2]",
        "raw_any": "float64[*]",
        "raw_f16": "float16[4]",
        "string": "bytes",
        "strings": "bytes[2]",
        "u64": "uint64",
        "u8": "uint8[4,5]",
    }
    assert kinds["media"] == {
        "audio": "int64[*]",
        "box": "float32[4]",
        "caption": "text",
        "image": "bytes",
        "label": "int64",
        "many/language": "text[*]",
        "many/translation": "text[*]",
        "note": "bytes = ",
        "score": f"float32 = {float(np.finfo('float32').min)}",
        "stereo": "float32[*,2]",
        "translation/de": "text",
        "translation/en": "text",
        "video": "bytes[*]",
        "words": "text[*]",
    }
    assert kinds["nested"] == {
        "deep": "float32[*,*,*]",
        "fixed": "int64[3]",
        "frames": "float64[*,2,2]",
        "groups/ids": "int64[*,*]",
        "groups/size": "int64[*]",
        "objects/bbox": "float32[*,4]",
        "objects/label": "int64[*]",
        "objects/name": "text[*]",
        "packed": "int32[*,3]",
        "texts": "text[*,*]",
        "tokens": "int32[*,*]",
        "vectors": "float32[*,*,2]",
    }


@pytest.mark.parametrize(
    "split",
    ["train", "train[:80%]", "train[5:-3]", "test+train[10%:20%]", "all", "train[1shard:]"],
)
@pytest.mark.parametrize("form", ["tfrecord", "array_record"])
def test_a_split_has_the_rows_that_tfds_reads(
    tfds_folder: Path, expected: Rows, split: str, form: str
) -> None:
    ds = rm.open(tfds_folder / form / "plain/1.2.0", split=split)
    wanted = expected[f"plain:{split}"]
    assert len(ds) == len(wanted)
    assert_rows(ds[:], wanted)
    assert_rows(ds[::-1], wanted[::-1])
    streamed = [row["u64"] for row in ds]
    assert streamed == [row["u64"] for row in wanted]


def test_an_empty_part_has_the_columns(tfds_folder: Path) -> None:
    ds = rm.open(tfds_folder / "tfrecord/plain/1.2.0", split="train[5:5]")
    assert len(ds) == 0
    assert ds.schema == rm.open(tfds_folder / "tfrecord/plain/1.2.0", split="test").schema
    assert ds[:]["f32"].shape == (0, 2, 3)


@pytest.mark.parametrize(
    ("split", "words"),
    [
        ("valid", "no split 'valid'; there are: 'train' (23 rows), 'test' (7 rows), and 'all'"),
        ("train[", "cannot be read: write 'train'"),
        ("train[5]", "give a span of rows, such as [10:20]"),
        ("train[:101%]", "give -100% to 100%"),
        ("train[:24]", "there are 23 rows"),
        ("train[5%:10]", "give both bounds in rows, % or shards"),
        ("train[9shard:]", "there are 3 shards"),
        ("all[:5]", "'all' takes no rows"),
        ("", "cannot be read"),
    ],
)
def test_a_split_that_makes_no_sense_is_refused(tfds_folder: Path, split: str, words: str) -> None:
    with pytest.raises(rm.OptionError, match=re.escape(words)):
        rm.open(tfds_folder / "tfrecord/plain/1.2.0", split=split)


def test_without_a_split_the_error_names_them(tfds_folder: Path) -> None:
    with pytest.raises(
        rm.OptionError, match=r"which split\? There are: 'train' \(23 rows\), 'test'"
    ):
        rm.open(tfds_folder / "tfrecord/plain/1.2.0")
    assert len(rm.open(tfds_folder / "tfrecord/media/1.2.0")) == 9  # the only one


def test_the_folder_of_a_dataset_names_its_versions(tfds_folder: Path) -> None:
    with pytest.raises(rm.PathNotFoundError) as caught:
        rm.open(tfds_folder / "tfrecord/plain", split="train")
    assert "plain/1.2.0: 'train' (23 rows), 'test' (7 rows)" in str(caught.value)
    with pytest.raises(rm.PathNotFoundError, match="media/1.2.0: 'train'"):
        rm.open(tfds_folder / "tfrecord")


def test_split_and_unit_are_for_tfds(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(3))
    with pytest.raises(rm.OptionError, match="split='train' is for TFDS folders"):
        rm.open(tmp_path / "x.npy", split="train")
    with pytest.raises(rm.OptionError, match="unit='steps' is for TFDS folders"):
        rm.open(tmp_path / "x.npy", unit="steps")


def test_classes_have_names(tfds_folder: Path) -> None:
    ds = rm.open(tfds_folder / "tfrecord/media/1.2.0")
    assert ds.labels == {"label": ["cat", "dog", "Ente"]}
    assert ds.rename({"label": "kind"}).labels == {"kind": ["cat", "dog", "Ente"]}
    nested = rm.open(tfds_folder / "tfrecord/nested/1.2.0")
    assert nested.labels == {"objects/label": ["a", "b"]}


def test_info_says_what_columns_hold(tfds_folder: Path) -> None:
    info = rm.open(tfds_folder / "tfrecord/media/1.2.0").info()
    assert (info.format, info.rows, info.origin) == ("TFDS", 9, "from features.json")
    assert info.notes["image"] == "image, ? x 5 x 3, uint8"
    assert info.notes["label"] == "3 classes: cat, dog, Ente"
    assert info.notes["audio"] == "audio, 16000 Hz"
    assert info.size > 1000


def test_columns_are_chosen(tfds_folder: Path, expected: Rows) -> None:
    folder = tfds_folder / "tfrecord/media/1.2.0"
    ds = rm.open(folder, ["words", "label"])
    assert list(ds.schema) == ["words", "label"]
    assert_rows(ds[:], expected["media:train"])
    as_bytes = rm.open(folder, {"caption": "bytes"})
    assert str(as_bytes.schema["caption"]) == "bytes"
    assert_rows(as_bytes[:], expected["media:train"])
    with pytest.raises(rm.FieldMismatchError, match="column 'label' is int64, not float32"):
        rm.open(folder, {"label": "float32"})
    with pytest.raises(rm.FieldNotFoundError, match="no column 'x'"):
        rm.open(folder, ["x"])


def test_a_dataset_is_read_again_in_another_process(tfds_folder: Path, expected: Rows) -> None:
    ds = rm.open(tfds_folder / "tfrecord/plain/1.2.0", split="train[:80%]")
    again = pickle.loads(pickle.dumps(ds))
    assert_rows(again[:], expected["plain:train[:80%]"])
    shuffled = ds.select("u64").shuffle(seed=1).map(same, workers="processes:2").batch(5)
    found = np.concatenate([batch["u64"] for batch in shuffled])
    assert sorted(found) == sorted(row["u64"] for row in expected["plain:train[:80%]"])


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


def test_small_limits_read_few_rows(tfds_folder: Path, expected: Rows, tmp_path: Path) -> None:
    for name in ("plain", "nested"):
        ds = rm.open(tfds_folder / "tfrecord" / name / "1.2.0", split="train")
        shallow = [c for c in ds.schema if ds.schema[c].ragged < 3]
        ds.select(shallow).save(tmp_path / f"{name}.npz", memory="14MB", verify="full")
        assert_rows(rm.open(tmp_path / f"{name}.npz")[:], expected[f"{name}:train"])


# Damage.


def test_a_missing_shard_is_named(copied: Path) -> None:
    (copied / "plain-train.tfrecord-00001-of-00003").unlink()
    with pytest.raises(rm.PathNotFoundError, match="plain-train.tfrecord-00001-of-00003: no such"):
        rm.open(copied, split="train")
    assert len(rm.open(copied, split="test")) == 7


READS: dict[str, Callable[[rm.Dataset], object]] = {
    "len": len,
    "read": lambda ds: ds[:],
    "gather": lambda ds: ds[[20, 1]],
    "head": lambda ds: ds.head(12),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_shard_with_another_number_of_records_is_refused(
    copied: Path, read: Callable[[rm.Dataset], object]
) -> None:
    info = json.loads((copied / "dataset_info.json").read_text())
    train = next(split for split in info["splits"] if split["name"] == "train")
    lengths = [int(rows) for rows in train["shardLengths"]]
    train["shardLengths"] = [str(lengths[0] + 1), str(lengths[1] - 1), str(lengths[2])]
    (copied / "dataset_info.json").write_text(json.dumps(info))
    ds = rm.open(copied, split="train")
    words = f"has {lengths[0]} records, but dataset_info.json says {lengths[0] + 1}"
    with pytest.raises(rm.DataError, match=words) as caught:
        read(ds)
    assert caught.value.file is not None
    assert caught.value.file.endswith("00000-of-00003")


def test_a_damaged_record_is_named(copied: Path) -> None:
    shard = copied / "plain-train.tfrecord-00002-of-00003"
    data = bytearray(shard.read_bytes())
    data[-30] ^= 1
    shard.write_bytes(data)
    with pytest.raises(rm.CorruptRecordError, match="00002-of-00003: record 7"):
        rm.open(copied, split="train")[:]
    with pytest.warns(rm.SkippedRecordsWarning):
        assert len(rm.open(copied, split="train", errors="skip")) == 22


def test_verify_checks_the_shards_of_all_splits(copied: Path) -> None:
    found = rm.verify(copied)
    assert (found.ok, found.files, found.records) == (True, 6, 30)
    shard = copied / "plain-test.tfrecord-00001-of-00003"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    damaged = rm.verify(copied)
    assert not damaged.ok
    assert damaged.damage[0].file == str(shard)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("dataset_info.json", "{", "not JSON"),
        ("dataset_info.json", "[]", "not a JSON object"),
        ("dataset_info.json", "\xff", "not UTF-8"),
        ("dataset_info.json", '{"splits": 3}', "'splits' is not a list"),
        ("dataset_info.json", '{"splits": [{"name": "a", "shardLengths": [-1]}]}', "whole number"),
        ("dataset_info.json", '{"name": "x", "fileFormat": "riegeli"}', "its shards are riegeli"),
        ("dataset_info.json",
         '{"splits": [{"name": "train", "shardLengths": ["1"], "filepathTemplate": "../{SPLIT}"}]}',
         "does not name files"),
        ("dataset_info.json",
         '{"splits": [{"name": "train", "shardLengths": [1, 1], "filepathTemplate": "x"}]}',
         "names a file twice"),
        ("features.json", "{}", "does not say what it is"),
        ("features.json", '{"type": "x.Sequence", "content": {}}', "not a dict of columns"),
        ("features.json", '{"type": 3, "content": {}}', "does not say what it is"),
    ],
)  # fmt: skip
def test_damaged_metadata_is_refused(copied: Path, file: str, content: str, words: str) -> None:
    (copied / file).write_bytes(content.encode("latin-1"))
    with pytest.raises(rm.DataError, match=re.escape(words)) as caught:
        rm.open(copied, split="train")
    assert caught.value.file is None or Path(caught.value.file).name == file


def test_missing_metadata_is_named(copied: Path) -> None:
    (copied / "dataset_info.json").unlink()
    with pytest.raises(rm.PathNotFoundError, match="dataset_info.json: no such file"):
        rm.open(copied, split="train")


def test_a_feature_that_recmap_does_not_know_is_left_out_by_name(copied: Path) -> None:
    change(copied / "features.json", ('"dtype": "uint64"', '"dtype": "complex64"'))
    with pytest.raises(rm.DataError, match="feature 'u64' is has the dtype 'complex64'|'u64' has"):
        rm.open(copied, split="train")
    assert len(rm.open(copied, ["f32", "i32"], split="train")) == 23


def test_lengths_that_do_not_add_up_are_refused(tfds_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "nested/1.2.0"
    shutil.copytree(tfds_folder / "tfrecord/nested/1.2.0", folder)
    records = rm.open(folder / "nested-train.tfrecord-00000-of-00003")
    batch = records[:]
    lengths = batch["tokens/ragged_row_lengths_0"]
    row = int(np.flatnonzero(lengths.lengths)[-1])
    lengths.values[lengths.offsets[row]] += 1
    with rm.TFRecordWriter(folder / "nested-train.tfrecord-00000-of-00003", overwrite=True) as w:
        w.write({**batch, "tokens/ragged_row_lengths_0": lengths})
    with pytest.raises(rm.DataError, match="'tokens': the lengths in ragged_row_lengths_0 add up"):
        rm.open(folder)[:]


def older(entry: dict[str, Any]) -> dict[str, Any]:
    """Return a feature in the spelling that older versions of TFDS wrote."""
    content = next(value for key, value in entry.items() if key != "pythonClassName")
    kind = entry["pythonClassName"]
    made: dict[str, Any] = {re.sub("[A-Z]", lambda m: f"_{m[0].lower()}", key): value
                            for key, value in content.items()}  # fmt: skip
    if "features" in made:
        made = {name: older(each) for name, each in made["features"].items()}
    if "feature" in made:
        length = int(made["length"])
        made = {"feature": older(made["feature"]), "length": None if length < 0 else length}
    if "shape" in made:
        axes = [int(axis) for axis in made["shape"].get("dimensions", [])]
        made["shape"] = [None if axis < 0 else axis for axis in axes]
    return {"type": kind, "content": made}


@pytest.mark.parametrize("name", ["plain", "media", "nested"])
def test_older_metadata_means_the_same(tfds_folder: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / name / "1.2.0"
    shutil.copytree(tfds_folder / "tfrecord" / name / "1.2.0", folder)
    wanted = rm.open(folder, split="train")
    content = json.loads((folder / "features.json").read_text())
    (folder / "features.json").write_text(json.dumps(older(content)))
    found = rm.open(folder, split="train")
    assert found.schema == wanted.schema
    assert plain(list(found[:].values())) == plain(list(wanted[:].values()))


def test_an_index_is_made_of_files_not_of_a_dataset(copied: Path) -> None:
    with pytest.raises(
        rm.OptionError, match=r"rm\.index takes TFRecord files, such as .*tfrecord\*"
    ):
        rm.index(copied)
