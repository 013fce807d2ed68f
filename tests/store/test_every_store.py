"""Each kind of store is read alike: the same values, the same errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import recmap as rm
from recmap.store.find_objects import find_objects
from recmap.store.object_store import ObjectInfo, ObjectStore
from recmap.store.storage import Storage, parse_url
from tests.faulty_proxy import Cut, Drop, Stall, Status

if TYPE_CHECKING:
    from tests.buckets import Bucket

DATA = np.random.default_rng(1).integers(0, 256, 9 << 20, np.uint8).tobytes()
SMALL = DATA[: 1 << 20]
ODD_KEYS = [
    "a b.npy",
    "100%.npy",
    "p%41%2F.npy",
    "h#x?y.npy",
    "é/日本.npy",
    "s*[1].npy",
    "~+&=;,@!$'(){}.npy",
    '<&amp;>".npy',
]


def at(store: Bucket, key: str, **options: Any) -> tuple[ObjectStore, str]:
    """Return the store and the key that recmap makes of a URL."""
    url = parse_url(store.url_of(key))
    return ObjectStore(url, Storage({**store.storage, **options})), url.key


def found(store: Bucket, pattern: str) -> list[ObjectInfo]:
    url = parse_url(store.url_of(pattern))
    return find_objects(ObjectStore(url, Storage(store.storage)), url).objects


def test_spans_are_read_exactly(any_store: Bucket) -> None:
    any_store.put("d/x.bin", DATA)
    store, key = at(any_store, "d/x.bin")
    info = store.head(key)
    assert (info.size, info.pinned) == (len(DATA), True)
    rng = np.random.default_rng(2)
    spans = [(0, 0), (0, 1), (len(DATA) - 1, len(DATA)), (0, len(DATA))]
    spans += [tuple(sorted(rng.integers(0, len(DATA), 2).tolist())) for _ in range(5)]
    any_store.proxy.reset()
    for (begin, end), part in zip(spans, store.read_many(info, spans), strict=True):
        assert part.tobytes() == DATA[begin:end]
    assert any_store.proxy.body_bytes == sum(end - begin for begin, end in spans)


@pytest.mark.parametrize("key", ODD_KEYS)
def test_keys_are_literal(any_store: Bucket, key: str) -> None:
    any_store.put(key, SMALL[:10])
    store, name = at(any_store, key)
    info = store.head(name)
    assert store.read(info, 2, 10).tobytes() == SMALL[2:10]
    assert [each.key for each in found(any_store, key)] == [name]
    if any_store.listed:
        folder = key.rpartition("/")[0]
        assert [each.key for each in store.folder(folder).objects] == [key]
        assert [each.key for each in found(any_store, "**/*.npy")] == [key]


# SeaweedFS has no such keys: it merges slashes.
@pytest.mark.parametrize("kind", ["azure_container", "gcs_bucket"])
@pytest.mark.parametrize("key", ["d//x.npy", "/x.npy", "/d/x.npy", "d/../x.npy", "d/a\nb.npy"])
def test_keys_that_cannot_be_read_are_never_passed_over(
    request: pytest.FixtureRequest, kind: str, key: str
) -> None:
    bucket: Bucket = request.getfixturevalue(kind)
    bucket.put("d/good.npy", b"x")
    bucket.put("x.npy", b"x")
    bucket.put(key, b"y")
    with pytest.raises(rm.StoreError, match="which recmap cannot read"):
        found(bucket, "**")
    with pytest.raises(rm.RecmapError, match="recmap cannot read|an extra slash"):
        found(bucket, key)


def test_folders_made_in_a_web_console_hold_only_their_objects(any_bucket: Bucket) -> None:
    any_bucket.put("d/", b"")
    any_bucket.put("d/x.npy", b"x")
    for pattern in ("d/", "d", "*/*", "d/**"):
        assert [each.key for each in found(any_bucket, pattern)] == ["d/x.npy"]


@pytest.mark.parametrize(
    "faults",
    [[Status(503), Status(429)], [Drop()], [Cut(1000), Cut(5000)]],
    ids=str,
)
def test_passing_faults_do_not_show(any_store: Bucket, faults: list[Any]) -> None:
    any_store.put("x.bin", SMALL)
    store, key = at(any_store, "x.bin")
    info = store.head(key)
    any_store.proxy.faults.extend(faults)
    any_store.proxy.reset()
    assert store.read(info, 10, 900_000).tobytes() == SMALL[10:900_000]
    assert not any_store.proxy.faults
    assert any_store.proxy.count("GET") == len(faults) + 1


def test_a_body_that_stalls_is_asked_for_again(any_store: Bucket) -> None:
    any_store.put("x.bin", SMALL)
    store, key = at(any_store, "x.bin", read_timeout=1)
    info = store.head(key)
    any_store.proxy.faults.append(Stall(1000))
    assert store.read(info, 10, 900_000).tobytes() == SMALL[10:900_000]
    assert any_store.proxy.count("GET") >= 2


def test_an_object_that_changes_during_a_read_is_an_error(any_store: Bucket) -> None:
    any_store.put("x.bin", SMALL)
    store, key = at(any_store, "x.bin")
    info = store.head(key)
    change = Cut(1000, then=lambda: any_store.put("x.bin", SMALL[::-1]))
    any_store.proxy.faults.append(change)
    with pytest.raises(rm.ObjectChangedError):
        store.read(info, 0, 2000)


def test_a_changed_object_is_an_error(any_store: Bucket) -> None:
    any_store.put("x.bin", SMALL)
    store, key = at(any_store, "x.bin")
    info = store.head(key)
    any_store.put("x.bin", SMALL[::-1])
    with pytest.raises(rm.ObjectChangedError, match="changed while it was open"):
        store.read(info, 0, 10)
    any_store.delete("x.bin")
    # Azure looks at the version first, and calls it changed.
    with pytest.raises((rm.PathNotFoundError, rm.ObjectChangedError)):
        store.read(info, 0, 10)
    with pytest.raises(rm.PathNotFoundError, match="no such object"):
        store.head(key)
