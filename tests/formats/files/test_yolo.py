"""Labels in the text files of YOLO."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

import recmap as rm
from recmap.pipeline.row_source import SourceRows
from tests.pictures import encoded, picture

LINES = {
    "a": "0 0.5 0.5 0.25 0.5\n2 0.1 0.2 0.2 0.4\n",
    "b": "",
    "d": "\ufeff1 .5 0.5 1 1.0\r\n\n",
}


def layout(images: str, labels: str) -> None:
    for folder in (images, labels):
        os.makedirs(folder, exist_ok=True)
    for name in "abcd":
        Path(images, f"{name}.jpg").write_bytes(encoded(picture(), "JPEG"))
    for name, text in LINES.items():
        Path(labels, f"{name}.txt").write_text(text, encoding="utf-8", newline="")


def check(ds: rm.Dataset) -> None:
    assert [name.rpartition("/")[2] for name in ds["path"][:].tolist()] == [
        "a.jpg", "b.jpg", "c.jpg", "d.jpg"
    ]  # fmt: skip
    assert (str(ds.schema["boxes"]), str(ds.schema["classes"])) == ("float32[*,4]", "int64[*]")
    assert ds[:]["classes"].tolist() == [[0, 2], [], [], [1]]
    boxes = ds[:]["boxes"]
    assert np.allclose(boxes[0], [[0.375, 0.25, 0.625, 0.75], [0, 0, 0.2, 0.4]])
    assert np.allclose(boxes[3], [[0, 0, 1, 1]])
    assert boxes.lengths.tolist() == [2, 0, 0, 1]


@pytest.mark.parametrize(
    ("images", "labels", "folder", "beside"),
    [
        ("d/images/val", "d/labels/val", "d/images/val", "d/labels/val"),
        ("d/images/val", "d/labels/val", "d/images", "d/labels"),
        ("d/images/val", "d/labels/val", "d", "d/labels"),
        ("d/images/val", "d/labels/val", "d", "d"),
        ("d/val/images", "d/val/labels", "d/val", "d/val/labels"),
        ("d", "d", "d", "d"),
        ("d", "d", "d/", Path("d")),
    ],
)
def test_usual_layouts(images: str, labels: str, folder: str, beside: str) -> None:
    layout(images, labels)
    ds = rm.open(folder, labels=beside)
    check(ds)
    assert ds.labels == {}
    check(pickle.loads(pickle.dumps(ds)))
    for target in ("x.tfrecord", "x.parquet"):
        ds.save(target, verify="full")
        check(rm.open(target))
    batch = next(iter(ds.decode_image("image").batch(4, pad={"boxes": "longest"})))
    assert batch["boxes"].shape == (4, 2, 4)
    Path("d/data.yaml").write_text("path: x\nnames: [man, 'a: dog', \"cup\"]  # three\nnc: 3\n")
    ds = rm.open(folder, labels=beside)
    check(ds)
    assert ds.labels == {"classes": ["man", "a: dog", "cup"]}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("classes.txt", "man\na dog\ncup\n"),
        ("data.yaml", "train: x\nnames:\n  0: man\n  1: a dog  # a comment\n  2: 'cup'\nnc: 3\n"),
        ("data.yaml", "names:\n- man\n# no\n- a dog\n- cup\n"),
        ("data.yaml", "nc: 3\nnames: {0: man, 1: a dog,\n  2: cup}\n"),
        ("data.yml", "names: ['man', 'a dog', 'cup',]"),
    ],
)
def test_names_of_classes(name: str, text: str) -> None:
    yaml = pytest.importorskip("yaml")
    layout("d/images", "d/labels")
    Path("d/labels", name).write_text(text)
    assert rm.open("d/images", labels="d/labels").labels == {"classes": ["man", "a dog", "cup"]}
    if name != "classes.txt":
        names = yaml.safe_load(text)["names"]
        assert list(names.values() if isinstance(names, dict) else names)[1] == "a dog"


def test_names_of_classes_may_have_apostrophes() -> None:
    yaml = pytest.importorskip("yaml")
    layout("d/images", "d/labels")
    for text in (
        "names:\n  0: baby's cot\n  1: dogs'\n  2: cup\n",
        "names: [baby's cot, dogs', cup]\n",
    ):
        Path("d/labels/data.yaml").write_text(text)
        told = yaml.safe_load(text)["names"]
        names = list(told.values() if isinstance(told, dict) else told)
        assert rm.open("d/images", labels="d/labels").labels == {"classes": names}


def test_what_does_not_fit_is_an_error_that_names_it() -> None:
    layout("d/images", "d/labels")

    def refused(why: str, text: str) -> None:
        Path("d/labels/c.txt").write_text(text)
        with pytest.raises(rm.DataError, match=why):
            rm.open("d/images", labels="d/labels")
        Path("d/labels/c.txt").unlink()

    refused("c.txt: line 2: 4 values, not 5", "0 1 1 1 1\n0 1 1 1\n")
    refused("c.txt: line 1: 9 values, not 5: .*Polygons", "0 0 0 0 1 1 1 0 1")
    refused("class is 'x', not a whole number", "x 0 0 1 1")
    refused("class is '-1', not a whole number", "-1 0 0 1 1")
    refused("class is '1.0', not a whole number", "1.0 0 0 1 1")
    refused("width is 12, not a fraction of the image", "0 0 0 12 1")
    refused("x is nan, not a fraction", "0 nan 0 1 1")
    refused("'0 a 1 1' are not four numbers", "0 0 a 1 1")
    refused("'0 0_1 1 1' are not four numbers", "0 0 0_1 1 1")
    Path("d/labels/c.txt").write_bytes(b"0 0 0 1 1 \xff")
    with pytest.raises(rm.DataError, match="c.txt: not labels of YOLO: not UTF-8"):
        rm.open("d/images", labels="d/labels")
    Path("d/labels/c.txt").write_text("0 0 0 1 1")
    Path("d/labels/e.txt").write_text("0 0 0 1 1")
    with pytest.raises(rm.DataError, match="e.txt: no image of this name in d/images"):
        rm.open("d/images", labels="d/labels")
    with pytest.warns(rm.SkippedRecordsWarning, match="labels of 1 file"):
        assert len(rm.open("d/images", labels="d/labels", errors="skip")) == 4
    Path("d/labels/e.txt").unlink()
    Path("d/data.yaml").write_text("names: [man, dog]\n")
    with pytest.raises(
        rm.DataError, match="a.txt: line 2: class is 2, but .*data.yaml has only 2 names; the first"
    ):
        rm.open("d/images", labels="d/labels")
    Path("d/data.yaml").write_text("names: &x [man, dog]\n")
    with pytest.raises(rm.DataError, match="data.yaml: cannot read the names of classes"):
        rm.open("d/images", labels="d/labels")
    Path("d/data.yaml").unlink()
    Path("d/images/a.png").write_bytes(b"")
    with pytest.raises(rm.DataError, match="a.txt may be the labels of 'a.jpg' or of 'a.png'"):
        rm.open("d/images", labels="d/labels")
    with pytest.raises(rm.DataError, match="no .txt files in this folder"):
        rm.open("d/images", labels="d/images")


def test_a_change_of_the_labels_is_noticed() -> None:
    layout("d/images", "d/labels")
    ds = rm.open("d/images", labels="d/labels")
    begun = ds.batch(2)
    next(iter(begun))
    state = begun.state()
    Path("d/labels/d.txt").write_text("0 .5 0.5 1 1.0\r\n\n")
    with pytest.raises(rm.OptionError, match="the contents of 2 files"):
        rm.open("d/images", labels="d/labels").batch(2).restore(state)
    rows = SourceRows(ds._source, ds._opened.reopen)
    with pytest.raises(
        rm.DataError, match="it had labels, and a worker that opened it found others"
    ):
        pickle.loads(pickle.dumps(rows)).gather(np.array([3]))
