"""Write the index files of TFRecord, tar and text files: ``rm.index``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recmap.errors import OptionError
from recmap.formats.registry import FORMATS, format_of
from recmap.local.local_path import located
from recmap.local.location import Location
from recmap.model.arguments import check_flag
from recmap.model.habits import helpful
from recmap.model.progress import ProgressOption, check_progress
from recmap.store.paths import PathsLike, expand, for_each_file
from recmap.tfrecord.make_index import index_records


@helpful
def index(
    path: PathsLike,
    *,
    text: bool = False,
    storage: Mapping[str, Any] | None = None,
    progress: ProgressOption = None,
) -> list[str]:
    """Write an index next to each TFRecord, tar or text file, and return the names of the indexes.

    Every TFRecord record is checked, and the index has a schema that fits all of them. The index
    of a tar file says where its members are, that of a CSV or JSON Lines file where rows begin.
    With ``text``, write ``file.idx`` instead, the list of offsets and sizes that DALI and the
    ``tfrecord`` package read. The records may then contain anything. ``storage`` has the options
    for URLs, as in ``rm.open``; the index of an object is another object.

    >>> import recmap as rm
    >>> rm.tfrecord.write_records("one.tfrecord", [b"", b"abc"], overwrite=True)
    2
    >>> rm.index("one.tfrecord", text=True)
    ['one.tfrecord.idx']
    >>> from pathlib import Path
    >>> Path("one.tfrecord.idx").read_text()
    '0 16\\n16 19\\n'
    """
    check_flag("text", text)
    check_progress(progress)
    files = expand(path, storage)
    for file in files:
        located(file).refuse_unwritable()
    others = [file for file in files if not _indexer(file)]
    if text and len(others) < len(files):
        raise OptionError("text=True writes the index of TFRecord files, which DALI reads")
    made = for_each_file(_index_one, [file for file in files if _indexer(file)])
    return made + (index_records(others, text=text, progress=progress) if others else [])


def _indexer(path: str) -> str:
    """Return the function that writes the index of a file that is not records."""
    format = format_of(path)
    return "" if format is None else FORMATS[format].indexes


def _index_one(path: Location) -> str:
    format = format_of(path)
    assert format is not None
    saved: str = FORMATS[format].load(_indexer(path))(path, path)
    return saved
