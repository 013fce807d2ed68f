"""Labels in the JSON of COCO."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.cli import main
from tests.buckets import S3Bucket
from tests.pictures import encoded, picture

CATEGORIES = [{"id": 3, "name": "car"}, {"id": 1, "name": "person"}, {"id": 90, "name": "cup"}]


def coco(images: int = 6, **changed: Any) -> dict[str, Any]:
    """Make the labels of images 0 to 5; image 2 has none, and image 4 a crowd."""
    made: list[dict[str, Any]] = []
    for image in range(images):
        for number in range(0 if image == 2 else image % 3 + 1):
            x, y, width, height = 1.5 + image, 2.25, 10.75 + number, 8.5
            made.append(
                {
                    "id": len(made) + 1,
                    "image_id": 100 + image,
                    "category_id": [1, 3, 90][(image + number) % 3],
                    "bbox": [x, y, width, height],
                    "area": width * height,
                    "iscrowd": int(image == 4),
                    "segmentation": [[x, y, x + width, y, x, y + height]],
                }
            )
    rng = np.random.default_rng(0)
    return {
        "info": {"description": "é", "year": 2017},
        "licenses": [],
        "images": [
            {"id": 100 + i, "file_name": f"{i:04d}.jpg", "width": 64, "height": 48}
            for i in range(images)
        ],
        "annotations": [made[i] for i in rng.permutation(len(made))],
        "categories": CATEGORIES,
        **changed,
    }


def photos(count: int = 6) -> None:
    os.makedirs("photos", exist_ok=True)
    for i in range(count):
        Path(f"photos/{i:04d}.jpg").write_bytes(encoded(picture(48, 64), "JPEG"))


def opened(content: Any, **options: Any) -> rm.Dataset:
    text = content if isinstance(content, str) else json.dumps(content)
    Path("instances.json").write_text(text, encoding="utf-8")
    return rm.open("photos", labels="instances.json", **options)


def test_boxes_and_classes_are_those_of_the_json() -> None:
    photos()
    labels = coco()
    ds = opened(labels)
    assert str(ds.schema) == (
        "Schema(path: text, image: bytes, image_id: int64, width: int64, height: int64, "
        "boxes: float32[*,4], "
        "classes: int64[*], category_id: int64[*], area: float32[*], iscrowd: bool[*])"
    )
    assert ds.labels == {"classes": ["person", "car", "cup"]}
    for i, row in enumerate(ds):
        mine = [each for each in labels["annotations"] if each["image_id"] == 100 + i]
        assert (row["path"], row["image_id"]) == (f"{i:04d}.jpg", 100 + i)
        boxes = np.array([each["bbox"] for each in mine]).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        assert np.array_equal(row["boxes"], boxes.astype("f4"))
        assert row["category_id"].tolist() == [each["category_id"] for each in mine]
        names = {each["id"]: each["name"] for each in CATEGORIES}
        found = [ds.labels["classes"][number] for number in row["classes"]]
        assert found == [names[each["category_id"]] for each in mine]
        assert row["iscrowd"].tolist() == [each["iscrowd"] for each in mine]
        assert np.array_equal(row["area"], np.array([each["area"] for each in mine], "f4"))
    assert "coco and files" in str(ds.info())
    images = ds.select("image", "boxes").decode_image("image", (24, 32))
    decoded = images.batch(4, pad="longest")
    batch = next(iter(decoded))
    assert batch["image"].shape == (4, 24, 32, 3)
    assert batch["boxes"].shape[2] == 4


def test_pycocotools_agrees() -> None:
    tools = pytest.importorskip("pycocotools.coco")
    photos()
    ds = opened(coco())
    known = tools.COCO("instances.json")
    for row in ds:
        each = known.loadAnns(known.getAnnIds(imgIds=[int(row["image_id"])]))
        boxes = np.array([annotation["bbox"] for annotation in each]).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        order = np.lexsort(boxes.astype("f4").T)
        assert np.array_equal(row["boxes"][np.lexsort(row["boxes"].T)], boxes.astype("f4")[order])
        assert sorted(row["category_id"].tolist()) == sorted(a["category_id"] for a in each)


def test_the_order_of_members_does_not_matter() -> None:
    photos()
    first = opened(coco())[:]
    for indent in (None, 2):
        turned = json.dumps(dict(reversed(coco().items())), indent=indent)
        for text in (turned, f"\ufeff{turned}\n"):
            again = opened(text)[:]
            assert all(plain(first[name]) == plain(again[name]) for name in first)


def plain(column: Any) -> Any:
    return column.tolist()


@pytest.mark.slow
def test_rows_are_shuffled_packed_and_sent() -> None:
    photos()
    ds = opened(coco())
    rows = ds[[5, 0, 5]]
    assert rows["boxes"].lengths.tolist() == [3, 1, 3]
    again = pickle.loads(pickle.dumps(ds))
    assert plain(again[:]["boxes"]) == plain(ds[:]["boxes"])
    for target in ("x.tfrecord", "x.parquet", "x.npz", "x.jsonl"):
        chosen = ds.select("image_id", "boxes", "classes", "iscrowd")
        assert chosen.save(target, verify="full").rows == 6
        assert plain(rm.open(target)[:]["classes"]) == plain(ds[:]["classes"])
    rm.convert("photos", "y.tar", labels="instances.json", verify="full")
    assert plain(rm.open("y.tar")[:]["boxes"]) == plain(ds[:]["boxes"])
    found = [
        int(number)
        for batch in ds.shuffle(seed=1).map(lambda row: row, workers=2).batch(2)
        for number in batch["image_id"]
    ]
    assert sorted(found) == list(range(100, 106))
    exploded = ds.select("path", "boxes", "classes").explode("boxes", "classes")
    assert len(exploded) == ds[:]["boxes"].lengths.sum()


def test_captions_keypoints_and_ids_that_are_text() -> None:
    photos(2)
    images = [{"id": name, "file_name": f"{i:04d}.jpg"} for i, name in enumerate("ab")]
    captions = [{"image_id": "b", "caption": "a cät"}, {"image_id": "b", "caption": ""}]
    ds = opened({"images": images, "annotations": captions})
    assert str(ds.schema["captions"]) == "text[*]"
    assert [row["captions"].tolist() for row in ds] == [[], ["a cät", ""]]
    assert ds["image_id"][:].tolist() == ["a", "b"]
    body = [1, 2, 2, 3.5, 4, 1]
    people = [{"image_id": "a", "category_id": 1, "bbox": [0, 0, 1, 1], "keypoints": body}]
    ds = opened({"images": images, "annotations": people, "categories": CATEGORIES})
    assert str(ds.schema["keypoints"]) == "float32[*,2,3]"
    assert ds[0]["keypoints"].tolist() == [[[1, 2, 2], [3.5, 4, 1]]]
    assert ds[1]["keypoints"].shape == (0, 2, 3)


def test_labels_without_annotations_have_empty_lists() -> None:
    photos(2)
    ds = opened(coco(2, annotations=[]))
    assert ds[:]["boxes"].lengths.tolist() == [0, 0]


def test_labels_in_the_folder_and_names_with_folders() -> None:
    os.makedirs("d/val/a")
    for name in ("d/val/a/1.jpg", "d/val/2.jpg"):
        Path(name).write_bytes(b"x")
    images = [{"id": 1, "file_name": "val/a/1.jpg"}, {"id": 2, "file_name": "val/2.jpg"}]
    labels = {"images": images, "annotations": [], "categories": CATEGORIES}
    Path("d/val/_annotations.coco.json").write_text(json.dumps(labels))
    for folder in ("d/val", "d/val/", Path("d/val"), os.path.abspath("d/val"), "d"):
        ds = rm.open(folder, format="files", labels="d/val/_annotations.coco.json")
        assert [name.rpartition("/")[2] for name in ds["path"][:].tolist()] == ["2.jpg", "1.jpg"]
        assert ds["image_id"][:].tolist() == [2, 1]
        assert "label" not in ds.schema


def test_what_does_not_fit_is_an_error_that_names_it() -> None:
    photos()
    labels = coco()
    first = labels["annotations"][0]

    def refused(why: str, content: Any, error: type[Exception] = rm.DataError) -> None:
        with pytest.raises(error, match=why) as caught:
            opened(content)
        assert "instances.json" in str(caught.value)

    def annotated(**change: Any) -> dict[str, Any]:
        return {**labels, "annotations": [first, {**first, **change}]}

    refused(
        r"annotation 1 \(id 1?\d\): 'bbox' is \[1, 2, 3\], not x, y, width",
        annotated(bbox=[1, 2, 3]),
    )
    refused("'bbox' is .*-1.*, not x, y", annotated(bbox=[1, 2, 3, -1]))
    refused("'bbox' is None, not x, y", annotated(bbox=None))
    refused("'bbox' is .*1e.300.*, not x, y", annotated(bbox=[1, 2, 3, 1e300]))
    refused("'bbox' is .*True.*, not x, y", annotated(bbox=[1, 2, 3, True]))
    refused("'category_id' is 7, which is not among 'categories'", annotated(category_id=7))
    refused("'image_id' is 7, which is not among 'images'", annotated(image_id=7))
    refused("'image_id' is None, not the id", annotated(image_id=None))
    refused("'iscrowd' is 2, not 0 or 1", annotated(iscrowd=2))
    refused("'caption' is 'x', but the first annotation has none", annotated(caption="x"))
    lacking = {name: value for name, value in first.items() if name != "area"}
    refused(
        "annotation 1 .*'area' is missing, not a number",
        {**labels, "annotations": [first, lacking]},
    )
    size = {"width": 64, "height": 48}
    twice = [*labels["images"], {"id": 100, "file_name": "x.jpg", **size}]
    refused("image 6: 'id' is 100, which is that of image 0", {**labels, "images": twice})
    twice[-1]["id"] = 7
    refused(r"image 6: no file 'x.jpg' in photos; open the folder", {**labels, "images": twice})
    twice[-1]["file_name"] = "0001.jpg"
    refused("image 6: '0001.jpg' is already in image 1", {**labels, "images": twice})
    refused(
        "no labels for '0005.jpg' of photos; add them",
        {**labels, "images": twice[:5], "annotations": []},
    )
    refused(
        "'width' is -1, not a number",
        {**labels, "images": [{"id": 1, "file_name": "a", "width": -1}]},
    )
    refused("'file_name' is missing", {**labels, "images": [{"id": 1}]})
    refused(
        "'id' is 1.5, not a whole number", {**labels, "images": [{"id": 1.5, "file_name": "a"}]}
    )
    refused(
        "category 1: 'id' is 3, which another category has",
        {**labels, "categories": [CATEGORIES[0]] * 2},
    )
    refused("has no annotations; labels in JSON are those of COCO", {"images": []})
    refused("a list, as predictions are", [{"image_id": 1, "score": 0.5}])
    refused("other kinds, such as panoptic", {**labels, "annotations": [{"image_id": 100}]})
    refused("NaN, which is not JSON", json.dumps(annotated(area=float("nan"))))
    text = json.dumps(labels)
    refused("the file ends here", text[:-20])
    refused("byte .*Expecting", text.replace('"area": ', '"area": x', 1))
    refused("more follows", text + "{}")
    refused("'images' is there twice", text[:-1] + ', "images": []}')
    refused("Exceeds the limit|not x, y", text.replace("8.5]", "1" * 5000 + "]", 1))
    refused("nested|recursion", '{"info": ' + "[" * 200_000)
    Path("instances.json").write_bytes(text.encode("utf-8").replace(b"car", b"c\xff", 1))
    with pytest.raises(rm.DataError, match="not UTF-8"):
        rm.open("photos", labels="instances.json")
    with pytest.raises(rm.PathNotFoundError, match="missing.json"):
        rm.open("photos", labels="missing.json")
    with pytest.raises(rm.OptionError, match="labels is for a folder of files"):
        rm.open("photos/0000.jpg", format="raw", dtype="uint8", labels="instances.json")


def test_files_and_labels_without_each_other_are_left_out_if_asked() -> None:
    photos()
    Path("photos/README").write_text("no image")
    labels = coco(5)
    labels["images"].append({"id": 7, "file_name": "gone.jpg", "width": 1, "height": 1})
    with pytest.warns(rm.SkippedRecordsWarning, match="left out 2 files .* labels of 1 file "):
        ds = opened(labels, errors="skip")
    assert ds["image_id"][:].tolist() == [100, 101, 102, 103, 104]
    assert list(ds.schema)[1] == "image"


def test_a_change_of_the_labels_is_noticed() -> None:
    photos()
    ds = opened(coco())
    begun = ds.shuffle(seed=1).batch(2)
    next(iter(begun))
    state = begun.state()
    changed = coco()
    changed["annotations"][3]["bbox"][0] += 1
    other = opened(changed)
    with pytest.raises(rm.OptionError, match="the contents of 2 files"):
        other.shuffle(seed=1).batch(2).restore(state)
    with pytest.raises(rm.FileChangedError, match="instances.json: was (changed|replaced)"):
        pickle.loads(pickle.dumps(ds))


def test_the_command_line_takes_labels(capsys: pytest.CaptureFixture[str]) -> None:
    photos()
    opened(coco())
    assert main(["info", "photos", "--labels", "instances.json"]) == 0
    assert "boxes" in capsys.readouterr().out
    assert main(["convert", "photos", "out.parquet", "--labels", "instances.json"]) == 0
    assert len(rm.open("out.parquet")) == 6


def test_labels_in_a_bucket(bucket: S3Bucket) -> None:
    photos()
    opened(coco())
    for i in range(6):
        bucket.put(f"photos/{i:04d}.jpg", Path(f"photos/{i:04d}.jpg").read_bytes())
    bucket.put("instances.json", Path("instances.json").read_bytes())
    url = f"{bucket.url}/instances.json"
    ds = rm.open(f"{bucket.url}/photos/", labels=url, storage=bucket.storage)
    assert plain(ds[[4, 1]]["boxes"]) == plain(opened(coco())[[4, 1]]["boxes"])
