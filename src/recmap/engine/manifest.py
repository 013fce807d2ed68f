"""What a conversion is to make, and how far it came: ``_manifest.json``.

It is written before the first file and again after the last. A file under its final
name is whole, so that is all there is to know when the same conversion is run again.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from recmap.engine.plan import Shard
from recmap.errors import OutputExistsError
from recmap.types import Schema

__all__ = ["Manifest"]

_MAX_SIZE = 256 << 20


class Manifest:
    """The plan of one conversion, on disk beside its output."""

    def __init__(
        self,
        path: str,
        shards: Sequence[Shard],
        schema: Schema,
        format: str,
        source: Sequence[str],
        options: Mapping[str, Any],
    ) -> None:
        self.path = path
        self.shards = list(shards)
        folder = os.path.dirname(path)
        self._plan = {
            "recmap": 1,
            "format": format,
            "schema": {name: str(field) for name, field in schema.items()},
            "files": [
                {"file": os.path.relpath(s.path, folder or "."), "start": s.start, "stop": s.stop}
                for s in shards
            ],
            "source": [_fingerprint(file) for file in source],
            "options": dict(options),
        }

    def begin(self, resume: bool, overwrite: bool) -> list[Shard]:
        """Makes way, and says which files are still to be written."""
        known = self._load()
        same = known is not None and {key: known.get(key) for key in self._plan} == self._plan
        if resume and known is not None and same and not (known.get("complete") and overwrite):
            self._remove_temporary()
            return [shard for shard in self.shards if not os.path.exists(shard.path)]
        existing = [shard.path for shard in self.shards if os.path.exists(shard.path)]
        existing += [path for path in self._older(known) if path not in existing]
        if existing and not overwrite:
            raise OutputExistsError(
                f"{existing[0]} exists already, and was not made by this same conversion of the "
                "same files (use overwrite=True to replace it)"
            )
        for path in existing:
            _remove(path)
        self._remove_temporary()
        self._save(complete=False)
        return list(self.shards)

    def finish(self, results: Mapping[str, Any]) -> None:
        """Notes that all is done."""
        self._save(complete=True, **results)

    @property
    def worth_keeping(self) -> bool:
        """One file needs no list of files."""
        return len(self.shards) > 1 or os.path.basename(self.path) == "_manifest.json"

    def discard(self) -> None:
        """Removes the plan of a conversion that left nothing."""
        if os.path.exists(self.path):
            os.unlink(self.path)

    def _load(self) -> dict[str, Any] | None:
        try:
            with open(self.path, encoding="utf-8") as file:
                content = json.loads(file.read(_MAX_SIZE))
        except (OSError, ValueError, RecursionError):
            return None  # there is none, or it is not ours
        return content if isinstance(content, dict) else None

    def _older(self, known: Mapping[str, Any] | None) -> list[str]:
        """The files of an earlier conversion to the same place."""
        entries = (known or {}).get("files")
        if not isinstance(entries, list):
            return []
        folder = os.path.dirname(self.path)
        names = [entry.get("file") for entry in entries if isinstance(entry, dict)]
        plain = [name for name in names if isinstance(name, str) and os.path.basename(name) == name]
        paths = [os.path.join(folder, name) for name in plain if name]
        return [path for path in paths if os.path.exists(path)]

    def _remove_temporary(self) -> None:
        """Removes what a process that is no more has left."""
        for path in [self.path, *(shard.path for shard in self.shards)]:
            folder, name = os.path.split(path)
            for left in glob.glob(os.path.join(glob.escape(folder), f".{glob.escape(name)}.*.tmp")):
                owner = left.removesuffix(".tmp").rpartition(".")[2].partition("-")[0]
                if owner.isdigit() and _is_running(int(owner)):
                    raise OutputExistsError(
                        f"{left} is being written by process {owner}; wait for it, or stop it"
                    )
                _remove(left)

    def _save(self, complete: bool, **results: Any) -> None:
        folder, name = os.path.split(self.path)
        os.makedirs(folder or ".", exist_ok=True)
        temporary = os.path.join(folder, f".{name}.{os.getpid()}.tmp")
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump({**self._plan, "complete": complete, **results}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.path)


def _fingerprint(path: str) -> list[Any]:
    # What changes deep in a folder does not change the folder.
    inside = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    found = [os.stat(file) for file in inside or [path]]
    size = sum(status.st_size for status in found)
    return [os.path.abspath(path), size, max(status.st_mtime_ns for status in found)]


def _is_running(process: int) -> bool:
    if process == os.getpid():
        return False  # left by a process before a restart
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _remove(path: str) -> None:
    if os.path.isdir(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
