"""A damaged disk cache: never an error, never wrong data, nothing touched outside of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from recmap.cache.block_cache import BLOCK
from tests.cache.cached_blocks import (
    allocated,
    fill,
    make_cache,
    opened,
    place,
    sound_blocks,
)


def rewrite(path: str, change: Callable[[bytes], bytes]) -> None:
    with open(path, "rb") as file:
        changed = change(file.read())
    with open(path, "wb") as file:
        file.write(changed)


def replace_by(make: Callable[[str], Any]) -> Callable[[str], None]:
    def damage(path: str) -> None:
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        make(path)

    return damage


def flip(data: bytes) -> bytes:
    flipped = bytearray(data)
    for i in range(0, len(data), 1000):
        flipped[i] ^= 0x5A
    return bytes(flipped)


def swap(data: bytes, size: int) -> bytes:
    """Exchange the first two items of a size."""
    return data[size : 2 * size] + data[:size] + data[2 * size :]


DAMAGES: dict[str, Callable[[str], Any]] = {
    "flipped": lambda path: rewrite(path, flip),
    "cut": lambda path: rewrite(path, lambda data: data[: len(data) // 2]),
    "cut by a byte": lambda path: rewrite(path, lambda data: data[:-1]),
    "longer": lambda path: rewrite(path, lambda data: data + b"x"),
    "empty": lambda path: rewrite(path, lambda _: b""),
    "zeros": lambda path: rewrite(path, lambda data: bytes(len(data))),
    "ones": lambda path: rewrite(path, lambda data: b"\xff" * len(data)),
    "missing": os.unlink,
    "folder": replace_by(os.mkdir),
    "pipe": replace_by(os.mkfifo),
    "link outside": replace_by(lambda path: os.symlink(os.path.abspath("outside"), path)),
    "broken link": replace_by(lambda path: os.symlink("nowhere", path)),
    "link to itself": replace_by(lambda path: os.symlink(path, path)),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", ["data", "table", "object.json", "index", "usage"])
@pytest.mark.parametrize("in_use", [False, True])
def test_damage_never_gives_wrong_data(file: str, damage: str, in_use: bool) -> None:
    with open("outside", "wb") as outside:
        outside.write(bytes(3 * BLOCK + 99))
    cache = make_cache()
    entry = opened(cache, size=3 * BLOCK + 99)
    fill(entry, [0, 1, 3])
    with open(entry.file("index"), "wb") as index:
        index.write(b"anchors")
    folder = cache.folder.path if file == "usage" else place(entry)
    if not in_use:
        entry.close()
    DAMAGES[damage](os.path.join(folder, file))
    for reader in (cache, make_cache()):
        again = opened(reader, size=3 * BLOCK + 99)
        assert not os.path.islink(again.file("index"))
        fill(again, set(range(4)) - sound_blocks(again))
        assert sound_blocks(again) == {0, 1, 2, 3}
    assert sound_blocks(opened(make_cache(), size=3 * BLOCK + 99)) == {0, 1, 2, 3}
    with open("outside", "rb") as outside:
        assert outside.read() == bytes(3 * BLOCK + 99)
    cache.folder.count(lambda: 0)
    assert cache.folder.used() == allocated()


@pytest.mark.parametrize("damage", ["file", "link", "empty", "unknown files", "folder inside"])
def test_a_damaged_folder_is_started_afresh(damage: str) -> None:
    cache = make_cache()
    entry = opened(cache)
    fill(entry)
    folder = place(entry)
    entry.close()
    if damage in ("file", "link", "empty"):
        os.rename(folder, "outside")
    if damage == "file":
        with open(folder, "wb"):
            pass
    elif damage == "link":
        os.symlink(os.path.abspath("outside"), folder)
    elif damage == "empty":
        os.mkdir(folder)
    elif damage == "unknown files":
        with open(os.path.join(folder, ".index.what.tmp"), "wb"):
            pass
    else:
        os.mkdir(os.path.join(folder, "index"))
    again = opened(make_cache())
    assert sound_blocks(again) == ({0, 1, 2} if damage == "unknown files" else set())
    fill(again)
    if damage == "link":
        assert sorted(os.listdir("outside")) == ["data", "number", "object.json", "table"]
    assert sound_blocks(opened(make_cache())) == {0, 1, 2}
    again.close()


@pytest.mark.parametrize("damage", ["file", "link", "empty", "data is a pipe", "no data"])
def test_damaged_entries_make_room_for_others(damage: str) -> None:
    entry = opened(make_cache())
    fill(entry)
    folder = place(entry)
    entry.close()
    if damage == "data is a pipe":
        replace_by(os.mkfifo)(os.path.join(folder, "data"))
    elif damage == "no data":
        os.unlink(os.path.join(folder, "data"))
    else:
        os.rename(folder, "outside")
        if damage == "file":
            with open(folder, "wb") as file:
                file.write(bytes(3 * BLOCK))
        elif damage == "link":
            os.symlink(os.path.abspath("outside"), folder)
        else:
            os.mkdir(folder)
    # Something of others, which is none of the cache's business.
    stranger = os.path.join(os.path.dirname(folder), "notes.txt")
    with open(stranger, "w"):
        pass
    cache = make_cache()
    for one in cache.folder.objects():
        assert not cache.folder.in_use(one.key)
        assert cache.folder.drop(one.key) is not None
    assert not os.path.lexists(folder)
    assert os.path.exists(stranger)
    assert os.path.exists("outside") == (damage in ("file", "link", "empty"))


def test_a_block_whose_data_the_disk_lost_is_absent() -> None:
    """After a power failure, the table may be ahead of the data."""
    entry = opened(make_cache())
    fill(entry)
    os.pwrite(entry.fd, bytes(BLOCK), BLOCK)
    again = opened(make_cache())
    assert sound_blocks(again) == {0, 2}
    before = again.complete
    fill(again, [1])
    assert (before, again.complete) == (False, True)
    assert sound_blocks(opened(make_cache())) == {0, 1, 2}


def test_blocks_at_another_place_or_of_another_object_are_not_mistaken() -> None:
    cache = make_cache()
    one, other = opened(cache), opened(cache, "other")
    fill(one)
    fill(other, name="other")
    for name in ("data", "table"):
        shutil.copyfile(os.path.join(place(one), name), os.path.join(place(other), name))
    assert sound_blocks(opened(make_cache(), "other"), "other") == set()
    for name, size in (("data", BLOCK), ("table", 4)):
        path = os.path.join(place(one), name)
        rewrite(path, partial(swap, size=size))
    assert sound_blocks(opened(make_cache())) == {2}
