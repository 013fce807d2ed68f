"""One file per sample."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

import recmap as rm
from tests.buckets import S3Bucket
from tests.pictures import encoded, picture


def photos(root: Path) -> dict[str, bytes]:
    made = {}
    for i in range(12):
        name = f"{['dog', 'cat', 'ä emu'][i % 3]}/deep/{i:02d}.jpg"
        made[name] = bytes([i]) * (100 * i)
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(made[name])
    (root / ".cache").mkdir()
    (root / ".cache" / "x.jpg").write_bytes(b"hidden")
    return made


def test_files_below_a_folder_are_rows_and_its_folders_classes(tmp_path: Path) -> None:
    made = photos(tmp_path / "photos")
    names = sorted(made)
    ds = rm.open(tmp_path / "photos", format="files")
    assert str(ds.schema) == "Schema(path: text, image: bytes, label: int64)"
    assert ds["path"][:].tolist() == names
    assert ds["image"][:].tolist() == [made[name] for name in names]
    classes = ["cat", "dog", "ä emu"]
    assert ds["label"].tolist() == [classes.index(name.partition("/")[0]) for name in names]
    assert ds._source.facts.labels == {"label": classes}
    assert (len(ds), ds.info().size) == (12, sum(map(len, made.values())))
    assert "3 classes: cat, dog, ä emu" in str(ds.info())
    rows = [row for batch in ds.shuffle(seed=1).batch(5) for row in batch["path"].tolist()]
    assert sorted(rows) == names
    parts = [[*ds.shard(rank, 2).select("path").batch(3)] for rank in range(2)]
    assert sum(len(batch["path"]) for part in parts for batch in part) == 12
    again = pickle.loads(pickle.dumps(ds._source))
    assert again.gather(np.array([3]))["image"].tolist() == [made[names[3]]]
    for target in ("x.tfrecord", "x.tar", "x.parquet"):
        assert ds.save(target, verify="full").rows == 12
        assert rm.open(target)[:]["image"].tolist() == [made[name] for name in names]
    assert len(rm.open(tmp_path / "photos", format="files", fields=["path"])[:]["path"]) == 12
    assert ds.sample(6, balance="label", seed=1)["label"].shape == (6,)


def test_text_and_mixed_files_and_images_are_told_by_their_names() -> None:
    os.mkdir("a")
    Path("a/1.txt").write_text("é")
    assert rm.open("a", format="files")[0] == {"path": "1.txt", "text": "é"}
    Path("a/2.json").write_text("{}")
    assert list(rm.open("a", format="files").schema) == ["path", "bytes"]
    Path("a/2.json").unlink()
    Path("a/1.txt").write_bytes(b"\xff")
    with pytest.raises(rm.FieldMismatchError, match="row 0: column 'text'.* not UTF-8"):
        rm.open("a", format="files")[0]
    assert rm.open("a", format="files", fields={"text": "bytes"})[0] == {"text": b"\xff"}
    os.makedirs("b/c")
    Path("b/c/x.png").write_bytes(encoded(picture(), "PNG"))
    ds = rm.open("b", format="files").decode_image("image")
    assert ds[0]["image"].shape[2] == 3


def test_what_is_missing_or_changes_is_an_error() -> None:
    with pytest.raises(rm.PathNotFoundError, match="no such file or folder"):
        rm.open("missing", format="files")
    os.mkdir("a")
    with pytest.raises(rm.PathNotFoundError, match="no files in this folder"):
        rm.open("a", format="files")
    with pytest.raises(rm.OptionError, match="takes a folder, not a pattern"):
        rm.open("a/*.jpg", format="files")
    with pytest.raises(rm.OptionError, match="dtype, shape and offset"):
        rm.open("a", format="files", dtype="float32")
    for i in range(9):
        Path(f"a/{i}.bin").write_bytes(b"before")
    ds = rm.open("a", format="files")
    Path("a/3.bin").write_bytes(b"after it was listed")
    Path("a/7.bin").unlink()
    assert ds[4]["bytes"] == b"before"
    for row, why in ((3, "3.bin: row 3: it was changed"), (7, "7.bin: row 7: it was removed")):
        with pytest.raises(rm.FileChangedError, match=why):
            ds[row]
    with pytest.raises(rm.FileChangedError):
        ds[:]
    os.symlink(os.path.abspath("a"), "a/loop")
    with pytest.raises(rm.DataError, match="a link to a folder"):
        rm.open("a", format="files")
    os.unlink("a/loop")
    os.symlink("nowhere", "a/broken")
    with pytest.raises(rm.PathNotFoundError, match="broken"):
        rm.open("a", format="files")
    os.unlink("a/broken")
    os.mkfifo("a/pipe")
    with pytest.raises(rm.DataError, match="not a regular file"):
        rm.open("a", format="files")
    os.unlink("a/pipe")
    Path(os.fsdecode(b"a/\xff.bin")).write_bytes(b"")
    with pytest.raises(rm.DataError, match="not UTF-8; rename"):
        rm.open("a", format="files")


def test_objects_of_a_bucket_are_rows(bucket: S3Bucket, tmp_path: Path) -> None:
    made = photos(tmp_path)
    for name, content in made.items():
        bucket.put(f"photos/{name}", content)
    ds = rm.open(f"{bucket.url}/photos/", format="files", storage=bucket.storage)
    rows = np.random.default_rng(0).permutation(12)
    names = sorted(made)
    assert ds[rows]["image"].tolist() == [made[names[row]] for row in rows]
    assert ds.save("x.tfrecord", verify="full").rows == 12
    bucket.put("photos/dog/new.jpg", b"one version")
    ds = rm.open(f"{bucket.url}/photos", format="files", storage=bucket.storage)
    bucket.put("photos/dog/new.jpg", b"another one")
    with pytest.raises(rm.ObjectChangedError):
        ds[:]
