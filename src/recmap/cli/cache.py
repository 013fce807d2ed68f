"""recmap cache: show or clear what is kept on this machine's disk."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from typing import Any

from recmap.cache.block_cache import cache_budget, cache_folder
from recmap.cache.cache_folder import CacheFolder, StoredObject
from recmap.cli.arguments import add_verb
from recmap.cli.output import show_table
from recmap.errors import OutputError
from recmap.model.arguments import size_text
from recmap.model.json_text import json_text
from recmap.model.preview import printable

_EXAMPLES = """  recmap cache info
  recmap cache info --json | jq '.objects[].url'
  recmap cache clear
  RECMAP_CACHE=/nvme/cache RECMAP_CACHE_SIZE=500GB python train.py
"""
_UNKNOWN = "(damaged)"


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "cache",
        run,
        help="show or clear the disk cache of object stores and of ds.cache()",
        description=(
            "Lists the objects, and the rows of ds.cache(), that are kept on this machine's disk, "
            "with their sizes, or removes those that no process has open. RECMAP_CACHE sets the "
            "folder (default: ~/.cache/recmap), and RECMAP_CACHE_SIZE how much it may hold, "
            "such as 500GB (default: a tenth of the disk space that other files leave; 0: keep "
            "nothing)."
        ),
        examples=_EXAMPLES,
    )
    parser.add_argument("action", choices=("info", "clear"), help="what to do: info or clear")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    folder = cache_folder()
    found: list[StoredObject] = []
    if os.path.lexists(folder.path):
        folder.make()  # refuses what is not a cache of this user
        found = folder.count(lambda: 0)
    return (_info if args.action == "info" else _clear)(folder, found, as_json=args.json)


def _info(folder: CacheFolder, found: list[StoredObject], *, as_json: bool) -> int:
    budget = cache_budget(folder)
    used = sum(one.allocated for one in found)
    objects = [_facts(folder, one) for one in found]
    if as_json:
        print(
            json_text({"folder": folder.path, "budget": budget, "used": used, "objects": objects})
        )
        return 0
    in_use = sum(one["in_use"] for one in objects)
    print(printable(f"folder   {folder.path}"))
    print(f"used     {size_text(used)} of {size_text(budget)}")
    print(f"objects  {len(found):,}" + (f" ({in_use:,} in use)" if in_use else ""))
    if objects:
        print()
        _show_folders(objects)
    return 0


def _show_folders(objects: list[dict[str, Any]]) -> None:
    """Print a line for each folder of objects: a dataset may have thousands of them."""
    counts, kept, sizes, in_use = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for one in objects:
        place = _place(one["url"])
        counts[place] += 1
        kept[place] += one["allocated"]
        sizes[place] += one["size"] or 0
        in_use[place] += one["in_use"]
    header = ["folder", "objects", "in use", "kept", "size"]
    rows = [
        [
            place,
            f"{counts[place]:,}",
            f"{in_use[place]:,}",
            size_text(kept[place]),
            size_text(sizes[place]),
        ]
        for place in sorted(counts)
    ]
    show_table(header, rows, right=(1, 2, 3, 4))


def _clear(folder: CacheFolder, found: list[StoredObject], *, as_json: bool) -> int:
    removed, freed = 0, 0
    kept: list[StoredObject] = []
    for one in found:
        try:
            size = folder.drop(one.key)
        except OSError as e:
            raise OutputError(f"{one.path} cannot be removed: {e.strerror or e}") from e
        if size is None:
            kept.append(one)
        else:
            removed, freed = removed + 1, freed + size
    if as_json:
        in_use = [_facts(folder, one) for one in kept]
        print(json_text({"removed": removed, "freed": freed, "in_use": in_use}))
        return 0
    print(f"removed  {_amount(removed, freed)}")
    if kept:
        print(f"in use   {_amount(len(kept), sum(one.allocated for one in kept))}; not removed")
        for place in sorted({_place(_facts(folder, one)["url"]) for one in kept}):
            print(printable(f"         {place}"))
    return 0


def _place(url: str | None) -> str:
    if url is None:
        return _UNKNOWN
    return url if url.startswith("rows of ") else url.rpartition("/")[0] + "/"


def _amount(count: int, size: int) -> str:
    return f"{count:,} object{'' if count == 1 else 's'}, {size_text(size)}"


def _facts(folder: CacheFolder, one: StoredObject) -> dict[str, Any]:
    url, size = folder.describe(one.key) or (None, None)
    return {
        "url": url,
        "size": size,
        "allocated": one.allocated,
        "opened": one.opened,
        "in_use": folder.in_use(one.key),
    }
