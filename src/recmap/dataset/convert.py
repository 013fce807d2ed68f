"""rm.convert: convert files or a dataset to files of any format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recmap.conversion.engine import Report
from recmap.conversion.options import SaveOptions, Verify
from recmap.dataset.dataset import Dataset, save_rows
from recmap.dataset.moved_options import keywords, opening_text, refuse_moved
from recmap.dataset.open import open
from recmap.errors import OptionError, OptionTypeError
from recmap.model.arguments import as_mapping, checked
from recmap.model.habits import no_option
from recmap.model.progress import ProgressOption
from recmap.store.paths import PathLike


def convert(
    src: Any,
    dst: PathLike,
    *,
    format: str | None = None,
    compression: str | None = None,
    encoding: Mapping[str, str] | None = None,
    align: int | None = None,
    options: Mapping[str, Any] | None = None,
    shards: int | str | None = None,
    memory: int | str = "512MB",
    workers: int | str | None = None,
    verify: Verify = True,
    resume: bool = True,
    overwrite: bool = False,
    append: bool = False,
    progress: ProgressOption = None,
    engine: str = "local",
    storage: Mapping[str, Any] | None = None,
    **opening: Any,
) -> Report:
    """Convert files or a dataset to files of any format.

    Two paths are enough: ``rm.convert("train.npy", "train.tfrecord")``. The suffix of ``dst``
    determines the format; a folder (``"out/"``) gets TFRecord files. Memory stays below
    ``memory``, however large the input is. If a conversion is interrupted, make the same call
    again; it resumes with the files that are missing.

    This is ``rm.open(src).save(dst)``. To choose or change rows and columns, put verbs in between:
    ``rm.open("train.npz").select("x").cast({"x": "float32"}).shuffle(seed=1).save("out/")``.

    **The input.** ``src`` is anything that ``rm.open`` takes: a path, an open dataset, or an object
    such as a memmap or a DataFrame. You can also pass the options of ``rm.open``:
    ``rm.convert("x.dat", "out/", dtype="float32", shape=(-1, 10))``. ``format``, ``compression``
    and ``verify`` are about the output; give those of the input to ``rm.open``, and save what it
    returns. A conversion of a memmap resumes like that of a file; one of rows in memory starts
    over, and needs ``overwrite=True`` if it had finished any file.

    **The output.** Set ``format`` if the suffix of ``dst`` does not determine it. ``shards`` splits
    the output into several files: ``16`` files, or files of ``"256MB"`` or ``"10_000 rows"`` each.
    ``compression`` is ``"none"``, ``"gzip"`` or another method of the format. For TFRecord,
    ``encoding={"x": "raw"}`` sets how a field is stored, and ``align=64`` pads records so that they
    can be mapped. ``options`` has the less common options, most of them of one format:
    ``{"chunk_rows": 1000}``, ``{"level": 9}``, ``{"describe": False}``. ``{"durable": False}`` is
    for all formats: it does not wait until the data is on disk.

    With ``format="tfds"``, ``dst`` is a folder of datasets that ``tensorflow_datasets`` reads:
    ``rm.convert("train.npz", "~/tensorflow_datasets", format="tfds", options={"name": "faces",
    "split": "train"})`` writes ``faces/1.0.0``, and another call adds another split. ``dst`` may
    also be the folder of the version. With the option ``"episodes": "episode_index"``, rows with
    the same number in that column are one record, the steps of an episode (RLDS).

    With ``format="lerobot"``, ``dst`` is the folder of a LeRobot dataset:
    ``rm.convert("rlds/1.0.0", "out", split="train", unit="steps", format="lerobot", options={"fps":
    10})``. Its other options are ``episodes``, ``task``, ``instruction`` and ``robot_type``.

    **Cloud storage.** ``src`` and ``dst`` may be URLs that begin with ``s3://``, ``gs://`` or
    ``az://``, and ``src`` also an ``https://`` one. ``storage`` has the options of the stores,
    such as ``{"region": "eu-west-1"}``, for both; if the input needs others, give them to
    ``rm.open``. By default, they come from the environment and the usual configuration files.

    **The work.** ``workers`` is how many files to write at a time: ``4`` or ``"threads:4"``, or
    ``"processes:4"``. A file gets its name once it is complete and verified: ``verify=True`` checks
    its rows and CRCs, ``"full"`` compares every value with the source. ``overwrite=True`` replaces
    existing files; ``append=True`` adds files to those in a folder, all at once, if they have the
    same columns. ``resume=False`` starts over. ``progress=True`` draws a bar; a function is
    called with a ``Progress``. ``engine="ray"`` or ``"ray:ADDRESS"`` writes each file in a task of
    a Ray cluster.

    >>> import numpy as np, recmap as rm
    >>> np.save("x.npy", np.arange(40, dtype="float32").reshape(4, 10))
    >>> report = rm.convert("x.npy", "out/", shards=2)
    >>> report.rows, len(report.files)
    (4, 2)
    >>> rm.open("out/").schema
    Schema(data: float32[10])
    >>> rm.convert(np.load("x.npy", mmap_mode="r"), "x.tfrecord").rows
    4
    """
    if isinstance(opening.get("columns"), Mapping) and "fields" not in opening:
        opening["fields"] = opening.pop("columns")  # the types, not some columns to convert
    _refuse_old(opening, format)
    for option, value in opening.items():
        if option not in _OPEN_OPTIONS:
            raise no_option("rm.convert", option, _KNOWN, value)
    chosen = checked(SaveOptions, locals())
    target = chosen.located(dst, storage)
    if isinstance(src, Dataset) and opening:
        raise OptionError(
            f"the dataset is already open, so give {', '.join(opening)} to rm.open instead"
        )
    if storage is not None and not isinstance(src, Dataset):
        opening["storage"] = storage
    return save_rows(open(src, **opening), target, chosen)


_SAVE_OPTIONS = list(convert.__kwdefaults__ or ())
_OPEN_OPTIONS = [
    name for name in ("fields", *(open.__kwdefaults__ or ())) if name not in _SAVE_OPTIONS
]
_KNOWN = [*_SAVE_OPTIONS, *_OPEN_OPTIONS]


def _refuse_old(given: Mapping[str, Any], format: str | None) -> None:
    """Refuse options that are written in another way now, or that could mean two things."""
    source = given.get("source") or {}
    if "source" in given:
        source = as_mapping("source", source, '{"dtype": "float32"}')
    opening = {**source, **{n: value for n, value in given.items() if n in _OPEN_OPTIONS}}
    opened = opening_text(opening)
    refuse_moved("rm.convert ", given, opened)
    if "source" in given:
        direct = all(name in _OPEN_OPTIONS for name in source)
        now = ", ".join(["src", "dst", *keywords(source)])
        now = f"rm.convert({now})" if direct else f"{opened}.save(dst)"
        raise OptionTypeError(f"rm.convert does not take source: write {now}")
    if format == "tfds" and "split" in given:
        split = given["split"]
        raise OptionError(
            f"rm.convert: split={split!r} could be that of the input or of the output: write "
            f"options={{'split': {split!r}}} for the one to write, or {opened}.save(dst, "
            "format='tfds') for the one to read"
        )
