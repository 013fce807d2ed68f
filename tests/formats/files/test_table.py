"""Labels in tables: CSV as Kaggle has it, JSON Lines as Hugging Face has it, Parquet."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import recmap as rm


def photos(*names: str) -> None:
    for name in names or ("a.jpg", "b.jpg", "c.jpg"):
        os.makedirs(os.path.dirname(f"photos/{name}"), exist_ok=True)
        Path(f"photos/{name}").write_bytes(name.encode())


def opened(text: str, name: str = "labels.csv", **options: object) -> rm.Dataset:
    Path(name).write_text(text, encoding="utf-8")
    return rm.open("photos", labels=name, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["{}.jpg", "{}", "photos/{}.jpg", "./{}.jpg", r"x\photos\{}.jpg"])
@pytest.mark.parametrize("order", ["abc", "cab"])
def test_a_column_names_the_files(form: str, order: str) -> None:
    photos()
    rows = "".join(f"{form.format(name)},{ord(name)},{name}{name},\n" for name in order)
    ds = opened(f"id,age,breed,note\n{rows}")
    assert list(ds.schema) == ["path", "image", "age", "breed", "note"]
    assert ds["age"].tolist() == [97, 98, 99]
    assert ds[[2, 0]]["breed"].tolist() == ["cc", "aa"]
    assert ds["image"][:].tolist() == [b"a.jpg", b"b.jpg", b"c.jpg"]
    assert ds["note"][:].tolist() == [None, None, None]
    for target in ("x.parquet", "x.tar", "x.csv"):
        chosen = ds.select("path", "age", "breed")
        assert chosen.save(target, verify="full").rows == 3
    seen = [
        age for batch in ds.select("age").shuffle(seed=3).batch(2) for age in batch["age"].tolist()
    ]
    assert sorted(seen) == [97, 98, 99]
    assert (
        rm.open("photos", {"age": "int16", ...: None}, labels="labels.csv").schema["age"].dtype
        == "int16"
    )
    assert list(rm.open("photos", ["image", "age"], labels="labels.csv").schema) == ["image", "age"]


def test_files_in_folders_and_numbers_as_names() -> None:
    photos("x/1.png", "x/2.png", "y/1.png")
    ds = opened("label,file\n5,x/2.png\n6,y/1.png\n7,x/1.png\n")
    assert ds["label"].tolist() == [7, 5, 6]
    with pytest.raises(rm.DataError, match=r"row 1: '1.png' may be 'x/1.png' and 'y/1.png'"):
        opened("label,file\n5,x/2.png\n6,1.png\n7,x/1.png\n")
    Path("photos/y/1.png").unlink()
    assert opened("id,label\n2,5\n1,7\n")["label"].tolist() == [7, 5]
    with pytest.raises(rm.DataError, match="no file 'z/2.png'"):
        opened("id,label\nz/2.png,5\nx/1.png,7\n")


def test_lists_in_json_lines_and_parquet() -> None:
    photos()
    rows = [
        {"file_name": f"{name}.jpg", "objects": {"bbox": [[1, 2, 3, 4.5]] * i, "kind": [i] * i}}
        for i, name in enumerate("cab")
    ]
    ds = opened("".join(json.dumps(row) + "\n" for row in rows), "metadata.jsonl")
    assert ds[:]["objects/kind"].tolist() == [[1], [2, 2], []]
    rm.open("metadata.jsonl").save("labels.parquet")
    again = rm.open("photos", labels="labels.parquet")
    assert again[:]["objects/bbox"].tolist() == ds[:]["objects/bbox"].tolist()


def test_what_does_not_fit_is_an_error_that_names_it() -> None:
    photos()
    good = "id,n\na.jpg,1\nb.jpg,2\nc.jpg,3\n"
    for why, text in (
        (
            r"labels.csv: row 3: no file 'd.jpg' in photos \(and 1 more\)",
            good + "d.jpg,4\ne.jpg,5\n",
        ),
        ("row 3: 'b.jpg' is already in row 1; name each file once", good + "b.jpg,4\n"),
        ("no labels for 'c.jpg' of photos; add them", good.replace("c.jpg,3\n", "")),
        (
            "no column names the files of photos, which are called 'a.jpg'.*'id' has 'x'",
            "id,n\nx,1\n",
        ),
        ("row 2: column 'id' is empty, but should name a file", good.replace("c.jpg", "")),
        ("no labels: its only column, 'id', names the files", "id\na.jpg\nb.jpg\nc.jpg\n"),
        ("two columns are called 'n'", good.replace("id,n", "id,n,n")),
        ("row 1.*1 field", good.replace("b.jpg,2", "b.jpg")),
    ):
        with pytest.raises(rm.DataError, match=why) as caught:
            opened(text)[:]
        assert caught.value.file == "labels.csv"
    with pytest.raises(rm.FieldMismatchError, match="the files have a column 'path', too"):
        opened(good.replace("id,n", "id,path"))
    with pytest.raises(rm.UnknownFormatError):
        opened("nothing at all", "labels.txt")
    with pytest.warns(
        rm.SkippedRecordsWarning, match="1 file of photos without .* of 2 files that"
    ):
        ds = opened("id,n\na.jpg,1\nd.jpg,4\nb.jpg,2\ne.jpg,5\n", errors="skip")
    assert ds["n"].tolist() == [1, 2]


def test_a_change_of_the_labels_is_noticed() -> None:
    photos()
    good = "id,n\na.jpg,1\nb.jpg,2\nc.jpg,3\n"
    begun = opened(good).batch(2)
    next(iter(begun))
    state = begun.state()
    again = opened(good).batch(2)
    again.restore(state)
    assert [batch["n"].tolist() for batch in again] == [[3]]
    ds = opened(good)
    assert "from the names" in str(ds.info())
    with pytest.raises(rm.OptionError, match="the contents of 2 files"):
        opened(good.replace("3", "4")).batch(2).restore(state)
    with pytest.raises(rm.FileChangedError, match="labels.csv: was changed"):
        ds[0]


def test_many_files_are_found_by_name() -> None:
    os.mkdir("photos")
    for i in range(2000):
        Path(f"photos/{i:05d}.bin").write_bytes(b"%d" % i)
    order = np.random.default_rng(0).permutation(2000)
    ds = opened("file,n\n" + "".join(f"{i:05d}.bin,{i}\n" for i in order))
    rows = np.random.default_rng(1).permutation(2000)[:300]
    batch = ds[rows]
    assert batch["n"].tolist() == rows.tolist()
    assert batch["bytes"].tolist() == [b"%d" % i for i in rows.tolist()]
