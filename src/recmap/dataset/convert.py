"""rm.convert: convert files or a dataset to files of any format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Never

import numpy.typing as npt

from recmap.conversion.engine import Report
from recmap.conversion.options import SaveOptions, Verify
from recmap.conversion.transform import Casting
from recmap.dataset.dataset import Dataset, opened_rows
from recmap.dataset.open import open
from recmap.errors import OptionError, OptionTypeError
from recmap.model.arguments import as_mapping, checked, unknown_option
from recmap.model.nulls import Nulls
from recmap.model.progress import ProgressOption
from recmap.store.paths import PathLike


def convert(
    src: Any,
    dst: PathLike,
    *,
    format: str | None = None,
    source: Mapping[str, Any] | None = None,
    nulls: Nulls = "keep",
    compression: str | None = None,
    encoding: Mapping[str, str] | None = None,
    align: int | None = None,
    durable: bool = True,
    options: Mapping[str, Any] | None = None,
    shards: int | str | None = None,
    rows: slice | None = None,
    columns: Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
    cast: Mapping[str, npt.DTypeLike] | None = None,
    casting: Casting = "same_value",
    shuffle: bool = False,
    seed: int | None = None,
    memory: int | str = "512MB",
    workers: int | str | None = None,
    verify: Verify = True,
    resume: bool = True,
    overwrite: bool = False,
    append: bool = False,
    progress: ProgressOption = None,
    engine: str = "local",
    storage: Mapping[str, Any] | None = None,
    name: str | None = None,
    split: str | None = None,
    **unknown: Never,
) -> Report:
    """Convert files or a dataset to files of any format.

    Two paths are enough: ``rm.convert("train.npy", "train.tfrecord")``. The suffix of ``dst``
    determines the format; a folder (``"out/"``) gets TFRecord files. Memory stays below
    ``memory``, however large the input is. If a conversion is interrupted, make the same call
    again; it resumes with the files that are missing.

    **The input.** ``src`` is anything that ``rm.open`` takes: a path, an open dataset, or an object
    such as a memmap or a DataFrame. ``source`` is a dict of ``rm.open`` options:
    ``source={"dtype": "float32", "shape": (-1, 10)}``. ``nulls`` is ``"keep"``, ``"error"``,
    ``"fill"`` or ``"mask"``, for missing values. A conversion of a memmap resumes like that of a
    file; one of rows in memory starts over.

    **The output.** Set ``format`` if the suffix of ``dst`` does not determine it. ``shards`` splits
    the output into several files: ``16`` files, or files of ``"256MB"`` or ``"10_000 rows"`` each.
    ``compression`` is ``"none"``, ``"gzip"`` or another method of the format. For TFRecord,
    ``encoding={"x": "raw"}`` sets how a field is stored, and ``align=64`` pads records so that they
    can be mapped. ``options`` has the options specific to a format: ``{"chunk_rows": 1000}``,
    ``{"level": 9}``, ``{"describe": False}``. ``durable=False`` does not wait until the data is on
    disk.

    With ``format="tfds"``, ``dst`` is a folder of datasets that ``tensorflow_datasets`` reads:
    ``rm.convert("train.npz", "~/tensorflow_datasets", format="tfds", name="faces",
    split="train")`` writes ``faces/1.0.0``, and another call adds another split. ``dst`` may also
    be the folder of the version. (The split to read is ``source={"split": "train"}``.)

    **Cloud storage.** ``src`` and ``dst`` may be URLs that begin with ``s3://``, ``gs://`` or
    ``az://``, and ``src`` also an ``https://`` one. ``storage`` has the options of the stores,
    such as ``{"region": "eu-west-1"}``, for both; if the input needs others, give them as
    ``source={"storage": {...}}``. By default, they come from the environment and the usual
    configuration files.

    **The rows.** ``rows=slice(1000)`` and ``columns=["x"]`` select rows and columns.
    ``rename={"x": "pixels"}`` and ``cast={"x": "float32"}`` change columns; with
    ``casting="same_value"``, a value that the new type cannot hold is an error. ``"bytes"`` and
    ``"text"`` are cast to each other. ``shuffle=True`` writes the rows in random order; give
    ``seed`` for a reproducible one.

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
    for option, value in dict[str, Any](unknown).items():
        if option in _OPEN_OPTIONS:
            raise OptionTypeError(
                f"rm.convert: {option}= is an option of rm.open: give it for the input as "
                f"source={{{option!r}: {value!r}}}"
            )
        raise unknown_option(option, _KNOWN, "rm.convert: ", value)
    chosen = checked(SaveOptions, locals())
    target = chosen.located(dst, storage)
    given = {} if source is None else as_mapping("source", source, '{"dtype": "float32"}')
    for option in given:
        if option not in _OPEN_OPTIONS:
            raise unknown_option(option, _OPEN_OPTIONS, "source: ")
    if nulls != "keep":
        given.setdefault("nulls", nulls)
    if isinstance(src, Dataset) and given:
        raise OptionError(
            f"the dataset is already open, so give {', '.join(given)} to rm.open instead of source="
        )
    if storage is not None:
        given.setdefault("storage", storage)
    dataset = src if isinstance(src, Dataset) else open(src, **given)
    return opened_rows(dataset).save(target, chosen)


_OPEN_OPTIONS = ["fields", *(open.__kwdefaults__ or ())]
_KNOWN = [*(convert.__kwdefaults__ or ()), *_OPEN_OPTIONS]
