"""The files of a TFDS folder that are not data: ``dataset_info.json`` and its neighbours.

A folder holds one version of a dataset: ``mnist/3.0.1``. ``dataset_info.json`` lists the splits
and the number of rows in each of their shards, ``features.json`` the types of the columns, and
``NAME.labels.txt`` the names of the classes of a column. These files may come from anywhere, so
their contents are not trusted.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from recmap.errors import DataError, PathNotFoundError
from recmap.local.file_state import TFDS_FILE, TFDS_INFO
from recmap.local.location import Location
from recmap.model.preview import quantity
from recmap.store.paths import MOST_SHARDS, for_each_file

INFO, FEATURES = TFDS_INFO, TFDS_FILE
# The most bytes of a metadata file. Those of the largest datasets take a few hundred kilobytes.
_MAX_SIZE = 64 << 20
_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
_VERSION = re.compile(r"\d+\.\d+\.\d+")
# The most folders that are looked at to find the versions of a dataset.
_MOST_FOLDERS = 1000
_MOST_NAMED = 20


@dataclass(frozen=True)
class Split:
    """The shards of one split: the number of rows in each, and how they are named.

    Old versions of TFDS tell only how many shards there are, ``uncounted``.
    """

    name: str
    shard_rows: tuple[int, ...]
    size: int = 0
    template: str = _TEMPLATE
    uncounted: int = 0

    @property
    def rows(self) -> int:
        return sum(self.shard_rows)

    def __str__(self) -> str:
        many = quantity(self.uncounted, "shard") if self.uncounted else quantity(self.rows, "row")
        return f"{self.name!r} ({many})"


@dataclass(frozen=True)
class DatasetInfo:
    """What ``dataset_info.json`` says."""

    name: str
    version: str
    file_format: str = "tfrecord"
    splits: Mapping[str, Split] = field(default_factory=dict)
    #: Everything in the file, to be kept when it is written again.
    content: Mapping[str, Any] = field(default_factory=dict)

    def shard_names(self, split: Split) -> list[str]:
        """Return the names of the shards of a split, in order."""
        count = len(split.shard_rows) or split.uncounted
        digits = max(5, len(str(count)))
        names = [_shard_name(self, split, f"{i:0{digits}}", f"{count:0{digits}}")
                 for i in range(count)]  # fmt: skip
        if len(set(names)) < count:
            raise _bad(INFO, f"split {split.name!r}: {split.template!r} names a file twice")
        return names

    def describe_splits(self) -> str:
        """Return the splits and their rows in words."""
        return ", ".join(map(str, self.splits.values())) or "none"


def _shard_name(info: DatasetInfo, split: Split, number: str, count: str) -> str:
    values = {
        "DATASET": info.name,
        "SPLIT": split.name,
        "FILEFORMAT": info.file_format,
        "SHARD_INDEX": number,
        "NUM_SHARDS": count,
        "SHARD_X_OF_Y": f"{number}-of-{count}",
    }
    # Not str.format, which evaluates attributes and indexes in a template.
    made = re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], match[0]), split.template)
    if os.path.basename(made) != made or made in ("", ".", "..") or "\0" in made or "{" in made:
        raise _bad(INFO, f"split {split.name!r}: {split.template!r} does not name files")
    return made


def is_version(name: str) -> bool:
    """Return whether a folder's name is a version, such as ``3.0.1``."""
    return _VERSION.fullmatch(name) is not None


def load_info(folder: Location) -> DatasetInfo:
    """Read ``dataset_info.json``."""
    path = folder.child(INFO)
    return _parse_info(path, _parse_json(path, _read(path)))


def _parse_info(path: str, content: Mapping[str, Any]) -> DatasetInfo:
    file_format = _text(path, content, "fileFormat", "tfrecord") or "tfrecord"
    name, version = _text(path, content, "name"), _text(path, content, "version")
    listed = _get(content, "splits") or []
    if not isinstance(listed, list):
        raise _bad(path, "'splits' is not a list")
    splits = [_split(path, each) for each in listed]
    named = {split.name: split for split in splits}
    if len(named) < len(splits):
        raise _bad(path, "two splits have the same name")
    return DatasetInfo(name, version, file_format, named, content)


def add_split(folder: Location, new: DatasetInfo, split: Split) -> None:
    """Add a split to ``dataset_info.json``, or write it; keep what else the file says.

    ``new`` is used if there is no file yet. Another split may be added at the same time.
    """
    path = folder.child(INFO)

    def added(text: str | None) -> str:
        info = new if text is None else _parse_info(path, _parse_json(path, text))
        return _info_text(replace(info, splits={**info.splits, split.name: split}))

    path.update(added)


def _info_text(info: DatasetInfo) -> str:
    splits = [
        {
            "name": split.name,
            "numBytes": str(split.size),
            "shardLengths": [str(rows) for rows in split.shard_rows],
            "filepathTemplate": split.template,
        }
        for split in info.splits.values()
    ]
    content = {
        **info.content,
        "name": info.name,
        "version": info.version,
        "fileFormat": info.file_format,
        "splits": splits,
    }
    return json.dumps(content, indent=2, sort_keys=True)


def shard_files(folder: Location) -> list[Location]:
    """Return the shards of all splits; the folder itself if there is no list of them."""
    if not folder.child(INFO).is_file():
        return [folder]
    info = load_info(folder)
    names = [name for split in info.splits.values() for name in info.shard_names(split)]
    return [folder.child(name) for name in names]


def check_present(shards: Sequence[str]) -> None:
    """Raise if one of the shards that the metadata lists is missing."""
    there = for_each_file(lambda shard: shard.is_file(), shards)
    missing = [shard for shard, found in zip(shards, there, strict=True) if not found]
    if missing:
        raise PathNotFoundError(
            f"{missing[0]}: no such file, but {INFO} lists {len(shards):,} shards, of which "
            f"{len(missing):,} {'is' if len(missing) == 1 else 'are'} missing"
        )


def load_features(folder: Location) -> dict[str, Any]:
    """Read ``features.json``."""
    path = folder.child(FEATURES)
    return _parse_json(path, _read(path))


def keep_features(
    folder: Location, change: Callable[[dict[str, Any] | None], Mapping[str, Any]]
) -> None:
    """Write what ``change`` makes of ``features.json``; None means that there is none yet."""
    path = folder.child(FEATURES)

    def changed(text: str | None) -> str:
        content = change(None if text is None else _parse_json(path, text))
        return json.dumps(content, indent=4, sort_keys=True)

    path.update(changed)


def label_file(path: Sequence[str]) -> str:
    """Return the name of the file with the class names of a feature.

    >>> label_file(["label"]), label_file(["objects", "a/b"])
    ('label.labels.txt', 'objects-a.b.labels.txt')
    """
    return "-".join(name.replace("/", ".") for name in path) + ".labels.txt"


def load_labels(folder: Location, path: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the classes of a feature, or none."""
    file = label_file(path)
    if os.path.basename(file) != file or not folder.child(file).is_file():
        return ()
    text = _read(folder.child(file))
    return tuple(line.strip() for line in text.split("\n") if line.strip())


def describe_versions(folder: Location) -> str:
    """Say which versions of a dataset are below a folder; empty if there are none.

    They may be below the folders of its configurations: ``wikipedia/20230601.en/1.0.0``.
    """
    found: list[str] = []
    for name in _folders(folder):
        below = [] if is_version(name) else _folders(folder.child(name))
        for each in [name, *(f"{name}/{version}" for version in below)]:
            version = folder.child(each)
            told = any(version.child(file).is_file() for file in (FEATURES, INFO))
            if is_version(each.rpartition("/")[2]) and told:
                found.append(f"{version}: {load_info(version).describe_splits()}")
    if not found:
        return ""
    more = [f"and {len(found) - _MOST_NAMED:,} more"] if len(found) > _MOST_NAMED else []
    listed = "\n  ".join([*found[:_MOST_NAMED], *more])
    return f"{folder}: open a version of this dataset, with one of its splits:\n  {listed}"


def _folders(folder: Location) -> list[str]:
    names = folder.folders()
    return sorted(name for name in names if name[:1] not in (".", "_"))[:_MOST_FOLDERS]


def _split(path: str, entry: Any) -> Split:
    if not isinstance(entry, dict):
        raise _bad(path, "a split is not an object")
    name = _text(path, entry, "name")
    if not name:
        raise _bad(path, "a split has no name")
    lengths = _get(entry, "shardLengths") or []
    if not isinstance(lengths, list) or len(lengths) > MOST_SHARDS:
        raise _bad(path, f"split {name!r}: 'shardLengths' is not a list of at most {MOST_SHARDS:,}")
    rows = tuple(_whole(path, f"split {name!r}: 'shardLengths'", each) for each in lengths)
    size = _whole(path, f"split {name!r}: 'numBytes'", _get(entry, "numBytes") or 0)
    template = _text(path, entry, "filepathTemplate") or _TEMPLATE
    shards = _whole(path, f"split {name!r}: 'numShards'", _get(entry, "numShards") or 0)
    if shards > MOST_SHARDS:
        raise _bad(path, f"split {name!r}: 'numShards' is more than {MOST_SHARDS:,}")
    return Split(name, rows, size, template, 0 if rows else shards)


def _whole(path: str, what: str, value: Any) -> int:
    # JSON made by protobuf has 64-bit numbers as text.
    text = str(value) if type(value) in (int, str) else ""
    if not re.fullmatch(r"\d{1,18}", text):
        raise _bad(path, f"{what}: {value!r} is not a whole number")
    return int(text)


def _text(path: str, content: Mapping[str, Any], name: str, default: str = "") -> str:
    value = _get(content, name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise _bad(path, f"{name!r} is not text")
    return value


def _get(content: Mapping[str, Any], name: str) -> Any:
    """Return a value by its name in JSON, ``fileFormat``, or in protobuf, ``file_format``."""
    if name in content:
        return content[name]
    return content.get(re.sub(r"[A-Z]", lambda match: f"_{match[0].lower()}", name))


def _parse_json(path: str, text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise _bad(path, f"not JSON: {e}") from None
    if not isinstance(content, dict):
        raise _bad(path, "not a JSON object")
    return content


def _read(path: Location) -> str:
    if not path.is_file():
        raise PathNotFoundError(
            f"{path}: no such file; a TFDS folder has {INFO} and {FEATURES} next to its shards"
        )
    try:
        return path.text(_MAX_SIZE)
    except UnicodeDecodeError:
        raise _bad(path, "not UTF-8") from None
    except ValueError as e:
        raise _bad(path, str(e)) from None


def _bad(path: str, what: str) -> DataError:
    return DataError(f"{path}: {what}", file=path)
