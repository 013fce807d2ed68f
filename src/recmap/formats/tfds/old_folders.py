"""TFDS folders without ``features.json``, which versions before 4.0 did not write.

Only the records tell the types of the columns then.
"""

from __future__ import annotations

import re
from dataclasses import replace

from recmap.errors import DataError, Message, OptionError
from recmap.formats.combined import ConcatenatedSource
from recmap.formats.memory import memory_source
from recmap.formats.tfds.metadata import (
    FEATURES,
    INFO,
    DatasetInfo,
    Split,
    check_present,
)
from recmap.formats.tfds.splits import ShardRows, choose_shards
from recmap.formats.tfrecord_source import TFRecordSource
from recmap.local.location import Location
from recmap.machine.mapped import guarded
from recmap.model.ordered_rows import sliced
from recmap.model.schema import FieldsLike, Schema
from recmap.model.source import Errors, Source
from recmap.tfrecord.framing import open_record_file

WRITTEN_BY_OLD = f"an old version of TFDS wrote this folder, without {FEATURES}"


def is_old(folder: Location) -> bool:
    """Return whether an old version of TFDS wrote a folder."""
    return not folder.child(FEATURES).is_file() and folder.child(INFO).is_file()


def open_old(
    folder: Location,
    info: DatasetInfo,
    split: str | None,
    *,
    fields: FieldsLike | None,
    errors: Errors,
    verify: bool,
) -> Source:
    """Open the records of a split, with the types that they show."""
    if not info.splits:
        raise DataError(
            f"{folder}: {INFO} lists no splits; {WRITTEN_BY_OLD}. Open the shards of one split, "
            f"such as rm.open({folder.child('*train.tfrecord*')!r})",
            file=folder.child(INFO),
        )
    info = _counted(folder, info, split)
    try:
        pieces = choose_shards(info, split, folder)
    except OptionError as e:
        raise OptionError(Message(e.wording, f"; {WRITTEN_BY_OLD}")) from None
    shards = [_shards(folder, piece) for piece in pieces]
    every = [shard for those in shards for shard in those]
    if not every:
        return memory_source({}, Schema({}))
    records = TFRecordSource(every, fields, errors=errors, verify=verify, compression=None)
    if len(pieces) == 1:
        return _part(records, pieces[0])
    return ConcatenatedSource(
        [
            _part(
                TFRecordSource(
                    those,
                    errors=errors,
                    verify=verify,
                    compression=None,
                    decoder=records.decoder,
                ),
                piece,
            )
            for piece, those in zip(pieces, shards, strict=True)
        ]
    )


def _shards(folder: Location, piece: ShardRows) -> list[str]:
    files = [folder.child(name) for name in piece.shards]
    check_present(files)
    return [file.found() for file in files]


def _part(records: Source, piece: ShardRows) -> Source:
    return records if piece.whole else sliced(records, slice(piece.start, piece.stop))


def _counted(folder: Location, info: DatasetInfo, spec: str | None) -> DatasetInfo:
    """Count the rows of the splits that are asked for, if the metadata does not tell them."""
    asked = set(re.findall(r"[\w-]+", spec or ""))
    if spec is None and len(info.splits) == 1:
        asked = {*info.splits}
    splits = {
        name: _count(folder, info, split) if split.uncounted and asked & {name, "all"} else split
        for name, split in info.splits.items()
    }
    return replace(info, splits=splits)


@guarded
def _count(folder: Location, info: DatasetInfo, split: Split) -> Split:
    shards = [folder.child(name) for name in info.shard_names(split)]
    check_present(shards)
    counts = [open_record_file(shard, verify=False, compression=None).count() for shard in shards]
    return replace(split, shard_rows=tuple(counts), uncounted=0)
