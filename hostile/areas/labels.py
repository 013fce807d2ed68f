"""Labels beside a folder of files: COCO, YOLO and CSV, whole and damaged, read by other parsers."""

from __future__ import annotations

import csv
import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import recmap as rm
from hostile.case import Case
from hostile.file_damage import damage
from hostile.reading import check_some_ways
from hostile.table import Table, assert_same

__all__ = ["case"]


def case(case: Case) -> None:
    folder = case.path("photos")
    names = _files(case, folder)
    make = case.pick([_coco, _yolo, _table])
    labels, read = make(case, names)
    case.note(f"{len(names)} files, {labels}")
    check_some_ways(case, rm.open(folder, labels=labels), _with_files(folder, names, read(labels)))
    if case.chance(0.6):
        files = sorted(path for path in Path(labels).rglob("*.txt")) or [Path(labels)]
        damage(case, str(case.pick(files)))
        _check_damaged(case, folder, names, labels, read)


def _files(case: Case, folder: str) -> list[str]:
    names = []
    for i in range(case.between(1, 12)):
        name = f"{case.pick(['', '', 'a/', 'b b/ä/'])}{i:03d}.jpg"
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(path).write_bytes(case.rng.bytes(case.pick([0, 1, 300])))
        names.append(name)
    return sorted(names)


def _with_files(folder: str, names: list[str], labels: dict[str, Table]) -> Table:
    table: Table = {"path": list(names)}
    table["image"] = [Path(folder, name).read_bytes() for name in names]
    for column in next(iter(labels.values())):
        table[column] = [labels[name][column] for name in names]
    return table


def _check_damaged(case: Case, folder: str, names: list[str], labels: str, read: Any) -> None:
    """Check that damaged labels raise an error, or are what others read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rm.LeftOutWarning)
            batch = rm.open(folder, labels=labels)[:]
    except rm.RecmapError as e:
        case.note(f"refused: {e}")
        case.outcome = "refused"
        return
    try:
        expected = _with_files(folder, names, read(labels))
    except (KeyError, ValueError) as e:  # what recmap leaves out, or takes for text
        if isinstance(e, json.JSONDecodeError):
            raise
        case.note(f"the reference refuses it: {e!r}")
        return
    for name in set(batch) & set(expected):
        if name == "number" and isinstance(batch[name], rm.Ragged):
            continue  # some are no longer numbers, or quoted
        assert_same(batch[name], expected[name], f"damaged, column {name!r}")


def _boxes(corners: Any) -> Any:
    return np.array(corners, np.float64).reshape(-1, 4).astype(np.float32)


def _coco(case: Case, names: list[str]) -> tuple[str, Any]:
    ids = case.rng.permutation(1000)[: len(names)].tolist()
    kinds = case.rng.permutation(90)[: case.between(1, 5)].tolist()
    annotations = []
    for number in range(case.between(0, 30)):
        box = [round(float(each), 2) for each in case.rng.random(4) * 500]
        annotations.append(
            {"id": number, "image_id": case.pick(ids), "category_id": case.pick(kinds), "bbox": box,
             "area": float(case.between(0, 99)), "segmentation": [box], "iscrowd": number % 2}
        )  # fmt: skip
    content = {
        "info": {"text": "é[{"},
        "images": [{"id": i, "file_name": name} for i, name in zip(ids, names, strict=True)],
        "annotations": annotations,
        "categories": [{"id": kind, "name": f"kind {kind}"} for kind in kinds],
    }
    keys = [list(content)[i] for i in case.rng.permutation(4)]
    labels = case.path("labels.json")
    text = json.dumps({key: content[key] for key in keys}, indent=case.pick([None, 1]))
    Path(labels).write_text(text, encoding="utf-8")
    return labels, _read_coco


def _read_coco(labels: str) -> dict[str, Any]:
    content = json.loads(Path(labels).read_text(encoding="utf-8-sig"))
    kinds = sorted(each["id"] for each in content["categories"])
    found = {}
    for image in content["images"]:
        mine = [each for each in content["annotations"] if each["image_id"] == image["id"]]
        boxes = np.array([each["bbox"] for each in mine], np.float64).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        found[image["file_name"]] = {
            "image_id": np.int64(image["id"]),
            "boxes": _boxes(boxes),
            "classes": np.array([kinds.index(each["category_id"]) for each in mine], np.int64),
            "category_id": np.array([each["category_id"] for each in mine], np.int64),
            "area": np.array([each["area"] for each in mine], np.float32),
            "iscrowd": np.array([bool(each.get("iscrowd")) for each in mine], np.bool_),
        }
    return found


def _yolo(case: Case, names: list[str]) -> tuple[str, Any]:
    labels = case.path("labels")
    os.makedirs(labels)
    written = 0
    for name in names:
        if written and case.chance(0.3):
            continue
        written += 1
        lines = []
        for _ in range(case.between(0, 4)):
            values = " ".join(f"{each:.6g}" for each in case.rng.random(4))
            lines.append(f"{case.between(0, 9)} {values}")
        path = Path(labels, name).with_suffix(".txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(case.pick(["\n", "\r\n"]).join([*lines, ""]), newline="")
    return labels, lambda labels: {name: _read_yolo(labels, name) for name in names}


def _read_yolo(labels: str, name: str) -> dict[str, Any]:
    path = Path(labels, name).with_suffix(".txt")
    text = path.read_text(encoding="utf-8-sig") if path.exists() else ""
    rows = np.array([list(map(float, line.split())) for line in text.splitlines() if line.split()])
    rows = rows.reshape(-1, 5)
    middle, size = rows[:, 1:3], rows[:, 3:]
    boxes = np.concatenate([middle - size / 2, middle + size / 2], axis=1)
    return {"boxes": _boxes(boxes), "classes": rows[:, 0].astype(np.int64)}


def _table(case: Case, names: list[str]) -> tuple[str, Any]:
    labels = case.path("labels.csv")
    with open(labels, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator=case.pick(["\n", "\r\n"]))
        writer.writerow(["file", "number", "text"])
        for i in case.rng.permutation(len(names)).tolist():
            writer.writerow([names[i], case.between(0, 10**12), f"t{case.pick(['ä', ',', 'x'])}"])
    return labels, _read_table


def _read_table(labels: str) -> dict[str, Any]:
    with open(labels, encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    return {row["file"]: {"number": np.int64(row["number"]), "text": row["text"]} for row in rows}
