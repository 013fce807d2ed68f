"""JPEGs, decoded and resized."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.bench import Bench
from benchmarks.report import Goal, Table, compare, reach
from benchmarks.tables.peer_files import image_readers

__all__ = ["measure"]

_NOTE = (
    "JPEGs of 500x375 in one TFRecord file, decoded to RGB, resized to 256x256 float32, in batches "
    "of 32. recmap: decode_image, whose resizing is antialiased. tf.data: map(decode_jpeg and "
    "resize, num_parallel_calls=AUTOTUNE), batch, prefetch; its resizing is not antialiased by "
    "default. The rest read the same JPEGs from their own formats and resize with Pillow, "
    "antialiased. SPDL: its pipeline over files, a batch at a time in as many threads as CPUs; "
    "{spdl} datasets: the Image feature, with_transform, and a DataLoader of 2 workers. "
    'WebDataset: decode("pil") of tar files, map, batched, and a WebLoader of 0 or 2 workers, '
    "whichever a trial found faster. Workers are started before the clock. GB/s count the output. "
    "The target in rows/s is for two cores of Neoverse-N1."
)
_BATCH, _SIZE = 32, 256
_TARGET = 1.0
_WITH_TARGET = "tf.data"
_GOAL = Goal(1234, "rows/s")
# Decoders differ by a level or two.
_TOLERANCE = 0.02
_WITH_FFMPEG = "without Pillow, it decodes and resizes with FFmpeg."
_WITHOUT_FFMPEG = "its own decoder needs FFmpeg, which was not found here."


def measure(bench: Bench) -> Table:
    path, count = str(Path(bench.folder, "photos.tfrecord")), 64 if bench.quick else 512
    bench.worker("training").call("make_images", path=path, rows=count, width=500, height=375)
    folder = str(Path(bench.folder, "photos"))
    bench.worker("training").call("export_images", path=path, folder=folder)
    options: dict[str, Any] = {"batch": _BATCH, "size": _SIZE, "checked": True}
    entrants = bench.entrants("training", "recmap", "images", path=path, **options)
    for name, antialias in (("tf.data", False), ("tf.data, antialias=True", True)):
        entrants += bench.entrants(
            "tf training", name, "images", path=path, antialias=antialias, **options
        )
    entrants += image_readers(bench, folder, _BATCH, _SIZE)
    timings = bench.race("images", entrants, 4 * _SIZE * _SIZE * 3, _TOLERANCE)
    ours = timings.pop("recmap")
    case = "500x375 to 256x256"
    rows = [
        compare(case, ours, peer, _TARGET if peer.name.startswith(_WITH_TARGET) else None)
        for peer in timings.values()
    ]
    note = _NOTE.format(spdl=_WITH_FFMPEG if "SPDL" in timings else _WITHOUT_FFMPEG)
    return Table("Images", note, [*rows, reach(case, ours, _GOAL)])
