"""Random crops of JPEGs, and of images that are stored as arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench import Bench
from benchmarks.report import Row, Table, compare

__all__ = ["measure"]

_NOTE = (
    "JPEGs of 500x375 in one TFRecord file, a random crop of each resized to 224x224 and mirrored "
    'at random, uint8, in batches of 32. recmap: decode_image(crop="random_resized", flip=True). '
    "whole images: decode_image of all of each image to the same size. tf.data: "
    "sample_distorted_bounding_box, decode_and_crop_jpeg and resize, not antialiased, with "
    "num_parallel_calls=AUTOTUNE. simplejpeg: decode_jpeg in threads, cropped and resized with "
    "Pillow. "
    "Arrays: images of 256x256x3 uint8 in an .npy file, shuffled, in batches of 64; crops of "
    "224x224, mirrored at random, compared with gathering the same images whole. Rows a second "
    "count."
)
_BATCH, _RAW_BATCH, _SIZE, _SIDE = 32, 64, 224, 256
_WHOLE, _PEER, _GATHER = 1.5, 1.0, 0.7


def measure(bench: Bench) -> Table:
    return Table("Random crops", _NOTE, [*_jpegs(bench), *_arrays(bench)])


def _jpegs(bench: Bench) -> list[Row]:
    path, count = str(Path(bench.folder, "crops.tfrecord")), 64 if bench.quick else 512
    bench.worker("training").call("make_images", path=path, rows=count, width=500, height=375)
    options: dict[str, Any] = {"path": path, "batch": _BATCH, "size": _SIZE}
    entrants = [
        *bench.entrants("training", "recmap", "crops", **options),
        *bench.entrants("training", "recmap, fast=True", "crops", fast=True, **options),
        *bench.entrants("training", "recmap, whole images", "images", dtype="uint8", **options),
        *bench.entrants("tf training", "tf.data", "crops", **options),
        *bench.entrants("simplejpeg", "simplejpeg", "crops", **options),
    ]
    timings = bench.race("crops of JPEGs", entrants, _SIZE * _SIZE * 3)
    ours = timings.pop("recmap")
    fast = timings.pop("recmap, fast=True")
    rows = []
    for peer in timings.values():
        target = _WHOLE if peer.name.startswith("recmap") else _PEER
        rows.append(compare("JPEGs", ours, peer, target))
    return [*rows, compare("JPEGs, fast=True", fast, ours, None)]


def _arrays(bench: Bench) -> list[Row]:
    path, count = Path(bench.folder, "squares.npy"), 256 if bench.quick else 4096
    shape = (count, _SIDE, _SIDE, 3)
    np.save(path, np.random.default_rng(0).integers(0, 256, shape, np.uint8))
    options: dict[str, Any] = {"path": str(path), "batch": _RAW_BATCH}
    rows = []
    for layout in ("HWC", "CHW"):
        entrants = [
            *bench.entrants("training", "recmap", "crops_of_arrays", layout=layout, **options),
            *bench.entrants("training", "recmap, whole images", "train", **options),
        ]
        timings = bench.race(f"crops of arrays, {layout}", entrants, _SIZE * _SIZE * 3)
        ours, whole = timings.values()
        rows.append(compare(f"arrays, {layout}", ours, whole, _GATHER))
    return rows
