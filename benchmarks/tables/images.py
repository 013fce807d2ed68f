"""JPEGs, decoded and resized."""

from __future__ import annotations

from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.report import Table, compare

__all__ = ["measure"]

_NOTE = (
    "JPEGs of 500x375 in one TFRecord file, decoded to RGB, resized to 256x256 float32, in batches "
    "of 32. recmap: decode_image, whose resizing is antialiased. tf.data: map(decode_jpeg and "
    "resize, num_parallel_calls=AUTOTUNE), batch, prefetch; its resizing is not antialiased by "
    "default. GB/s count the output."
)
_BATCH, _SIZE = 32, 256
_TARGET = 1.0


def measure(bench: Bench) -> Table:
    path, rows = str(Path(bench.folder, "photos.tfrecord")), 64 if bench.quick else 512
    bench.worker("training").call("make_images", path=path, rows=rows, width=500, height=375)
    entrants = bench.entrants("training", "recmap", "images", path=path, batch=_BATCH, size=_SIZE)
    for name, antialias in (("tf.data", False), ("tf.data, antialias=True", True)):
        entrants += bench.entrants(
            "tf training", name, "images",
            path=path, batch=_BATCH, size=_SIZE, antialias=antialias,
        )  # fmt: skip
    timings = bench.race("images", entrants, 4 * _SIZE * _SIZE * 3)
    ours = timings.pop("recmap")
    case = "500x375 to 256x256"
    return Table("Images", _NOTE, [compare(case, ours, p, _TARGET) for p in timings.values()])
