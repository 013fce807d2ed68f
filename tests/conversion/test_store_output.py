"""Conversions to object stores: the same bytes as on disk, all of them or none."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.errors import OutputExistsError
from tests.buckets import Bucket, HttpFolder, S3Bucket, as_written_locally
from tests.faulty_proxy import Status

SUFFIXES = [".tfrecord", ".tfrecord.gz", ".npy", ".bin", ".npz", ".h5", ".zarr"]
ROWS = 8000


pytestmark = pytest.mark.usefixtures("small_parts")


@cache
def _columns(rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(rows, 200)).astype("float32")
    return {"x": x, "label": rng.integers(0, 9, rows)}


def _rows(suffix: str, rows: int = ROWS) -> rm.Dataset:
    columns = _columns(rows)
    return rm.from_arrays({"x": columns["x"]} if suffix == ".npy" else columns)


def _on_disk(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def _in_bucket(bucket: Bucket, folder: str) -> dict[str, bytes]:
    keys = [key for key in bucket.keys() if key.startswith(f"{folder}/")]  # noqa: SIM118
    return {
        key.removeprefix(f"{folder}/"): as_written_locally(key, bucket.get(key)) for key in keys
    }


def _data(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files but the manifest, which holds times or ETags."""
    return {name: data for name, data in files.items() if "manifest.json" not in name}


def _assert_same(bucket: Bucket, folder: str, local: Path) -> None:
    found, wanted = _data(_in_bucket(bucket, folder)), _data(_on_disk(local))
    assert sorted(found) == sorted(wanted)
    assert found == wanted
    assert bucket.uploads() == []


@pytest.mark.parametrize(("shards", "verify"), [(1, "full"), (3, True)])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_has_the_bytes_of_the_local_engine(
    bucket: S3Bucket, tmp_path: Path, suffix: str, shards: int, verify: Any
) -> None:
    rows = _rows(suffix)
    rows.save(tmp_path / f"x{suffix}", shards=shards)
    report = rows.save(
        f"{bucket.url}/d/x{suffix}", shards=shards, verify=verify, storage=bucket.storage
    )
    _assert_same(bucket, "d", tmp_path)
    assert report.rows == ROWS
    assert len(report.files) == shards
    kept = [name for name in _in_bucket(bucket, "d") if "manifest.json" in name]
    assert len(kept) == (1 if shards > 1 or suffix == ".zarr" else 0)


@pytest.mark.parametrize("suffix", [".tfrecord", ".npy", ".h5"])
def test_every_store_is_written(any_bucket: Bucket, tmp_path: Path, suffix: str) -> None:
    rows = _rows(suffix)
    url = f"{any_bucket.url}/d/x{suffix}"
    for _ in range(2):
        rows.save(tmp_path / f"x{suffix}", shards=2, overwrite=True)
        rows.save(url, shards=2, overwrite=True, storage=any_bucket.storage)
        _assert_same(any_bucket, "d", tmp_path)


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_few_rows_are_written(bucket: S3Bucket, tmp_path: Path, suffix: str, size: int) -> None:
    rows = _rows(suffix, size)
    rows.save(tmp_path / f"x{suffix}")
    rows.save(f"{bucket.url}/d/x{suffix}", storage=bucket.storage)
    _assert_same(bucket, "d", tmp_path)


def test_strings_and_rows_of_unknown_number_are_made_on_disk_first(
    bucket: S3Bucket, tmp_path: Path
) -> None:
    words = rm.from_arrays({"word": [b"a", b"bcd", b""] * 50})
    numbers = [{"x": np.arange(6, dtype="float32").reshape(2, 3)}] * 4
    saves: dict[str, Callable[..., Any]] = {
        "words.npy": words.save,
        "batches.npy": lambda dst, **more: rm.from_batches(iter(numbers)).save(dst, **more),
    }
    for name, save in saves.items():
        save(tmp_path / name)
        save(f"{bucket.url}/d/{name}", storage=bucket.storage)
    _assert_same(bucket, "d", tmp_path)


def test_folders_end_with_a_slash(bucket: S3Bucket, tmp_path: Path) -> None:
    rows = _rows(".tfrecord")
    rows.save(f"{tmp_path}/")
    report = rows.save(f"{bucket.url}/a/b/", storage=bucket.storage)
    assert report.files == [f"{bucket.url}/a/b/data.tfrecord"]
    _assert_same(bucket, "a/b", tmp_path)
    manifest = json.loads(bucket.get("a/b/_manifest.json"))
    assert manifest["complete"] is True
    with pytest.raises(rm.OptionError, match="what format"):
        rows.save(f"{bucket.url}/a/b", storage=bucket.storage)


def test_input_and_output_may_both_be_in_a_store(bucket: S3Bucket, tmp_path: Path) -> None:
    rows = _rows(".npy")
    rows.save(tmp_path / "x.npy")
    rows.save(f"{bucket.url}/in/x.npy", storage=bucket.storage)
    wanted = tmp_path / "out"
    rm.convert(tmp_path / "x.npy", f"{wanted}/", shards=2)
    rm.convert(
        f"{bucket.url}/in/x.npy",
        f"{bucket.url}/out/",
        shards=2,
        storage=bucket.storage,
        verify="full",
    )
    _assert_same(bucket, "out", wanted)
    rm.open(f"{bucket.url}/in/x.npy", storage=bucket.storage).save(
        f"{tmp_path}/back/", shards=2, verify="full"
    )
    assert _data(_on_disk(tmp_path / "back")) == _data(_on_disk(wanted))
    with pytest.raises(rm.OptionError, match="overwritten while it is read"):
        rm.convert(
            f"{bucket.url}/in/x.npy",
            f"{bucket.url}/in/x.npy",
            overwrite=True,
            storage=bucket.storage,
        )


def test_shuffled_rows_are_those_of_the_local_engine(bucket: S3Bucket, tmp_path: Path) -> None:
    rows = _rows(".npz")
    rows.save(tmp_path / "in.npz", compression="deflate")  # so that it is shuffled on disk
    rm.open(tmp_path / "in.npz").shuffle(seed=3).save(f"{tmp_path}/out/", shards=2)
    rm.open(tmp_path / "in.npz", storage=bucket.storage).shuffle(seed=3).save(
        f"{bucket.url}/out/", shards=2, storage=bucket.storage
    )
    _assert_same(bucket, "out", tmp_path / "out")


@pytest.mark.parametrize("workers", ["threads:3", "processes:2", "spawn:2"])
def test_workers_write_to_a_store(bucket: S3Bucket, tmp_path: Path, workers: str) -> None:
    rows = _rows(".tfrecord")
    rows.save(tmp_path / "in.tfrecord")
    rm.convert(tmp_path / "in.tfrecord", f"{tmp_path}/out/", shards=4)
    rm.convert(
        tmp_path / "in.tfrecord",
        f"{bucket.url}/out/",
        shards=4,
        workers=workers,
        storage=bucket.storage,
    )
    _assert_same(bucket, "out", tmp_path / "out")


def test_forked_workers_are_refused(bucket: S3Bucket, tmp_path: Path) -> None:
    _rows(".tfrecord").save(tmp_path / "in.tfrecord")
    with pytest.raises(rm.OptionError, match='workers="spawn:2"'):
        rm.convert(
            tmp_path / "in.tfrecord",
            f"{bucket.url}/out/",
            shards=4,
            workers="fork:2",
            storage=bucket.storage,
        )


def test_http_servers_are_not_written_to(http_folder: HttpFolder) -> None:
    with pytest.raises(rm.OptionError, match="does not write to them"):
        _rows(".npy").save(f"{http_folder.url}/x.npy")
    with pytest.raises(rm.OptionError, match="does not write to them"):
        rm.TFRecordWriter(f"{http_folder.url}/x.tfrecord")
    assert http_folder.proxy.requests == []


# Existing outputs


def test_existing_objects_are_replaced_only_if_asked(bucket: S3Bucket, tmp_path: Path) -> None:
    url = f"{bucket.url}/d/x.tfrecord"
    _rows(".tfrecord", 10).save(url, storage=bucket.storage)
    before = _in_bucket(bucket, "d")
    with pytest.raises(OutputExistsError, match="already exists.*overwrite=True"):
        _rows(".tfrecord", 20).save(url, storage=bucket.storage)
    assert _in_bucket(bucket, "d") == before
    _rows(".tfrecord", 20).save(url, storage=bucket.storage, overwrite=True)
    _rows(".tfrecord", 20).save(tmp_path / "x.tfrecord")
    _assert_same(bucket, "d", tmp_path)


@pytest.mark.parametrize("suffix", [".tfrecord", ".npy", ".zarr"])
def test_fewer_shards_replace_more(bucket: S3Bucket, tmp_path: Path, suffix: str) -> None:
    for shards in (5, 2):
        _rows(suffix, 100).save(
            f"{bucket.url}/d/x{suffix}", shards=shards, overwrite=True, storage=bucket.storage
        )
    _rows(suffix, 100).save(tmp_path / f"x{suffix}", shards=2)
    _assert_same(bucket, "d", tmp_path)


def test_a_smaller_zarr_store_replaces_a_larger_one(bucket: S3Bucket, tmp_path: Path) -> None:
    for rows in (400, 7):
        _rows(".zarr", rows).save(
            f"{bucket.url}/d/x.zarr",
            overwrite=True,
            storage=bucket.storage,
            options={"chunk_rows": 5},
        )
    _rows(".zarr", 7).save(tmp_path / "x.zarr", options={"chunk_rows": 5})
    _assert_same(bucket, "d", tmp_path)


def test_objects_that_recmap_did_not_write_stay(bucket: S3Bucket) -> None:
    url = f"{bucket.url}/d/x.npy"
    _rows(".npy").save(url, shards=3, storage=bucket.storage)
    bucket.put("d/x-00002-of-00003.npy", b"mine")
    with pytest.raises(OutputExistsError, match="recmap did not write it"):
        _rows(".npy").save(url, shards=2, overwrite=True, storage=bucket.storage)
    assert bucket.get("d/x-00002-of-00003.npy") == b"mine"
    bucket.put("e/x.zarr/notes.txt", b"mine")
    with pytest.raises(OutputExistsError, match="not replaced"):
        _rows(".zarr").save(f"{bucket.url}/e/x.zarr", overwrite=True, storage=bucket.storage)
    bucket.put("f/_manifest.json", b"mine")
    with pytest.raises(OutputExistsError, match="not a manifest"):
        _rows(".npy").save(f"{bucket.url}/f/", overwrite=True, storage=bucket.storage)


# Interrupted conversions


class _InterruptError(Exception):
    pass


def _interrupted(after: int) -> Callable[[Any], None]:
    def watch(progress: Any) -> None:
        if progress.rows >= after:
            raise _InterruptError

    return watch


@pytest.mark.parametrize("suffix", [".tfrecord", ".npy", ".h5"])
def test_an_interrupted_conversion_resumes(bucket: S3Bucket, tmp_path: Path, suffix: str) -> None:
    source = tmp_path / "in.npy"
    np.save(source, np.random.default_rng(0).normal(size=(ROWS, 500)))
    dst = f"{bucket.url}/d/x{suffix}"
    options: dict[str, Any] = {"shards": 6, "workers": 1, "storage": bucket.storage}
    with pytest.raises(_InterruptError):
        rm.convert(source, dst, progress=_interrupted(ROWS // 2), **options)
    assert bucket.uploads() == []
    assert not any(key.endswith(".lock") for key in bucket.keys())  # noqa: SIM118
    report = rm.convert(source, dst, **options)
    assert 0 < report.resumed < 6
    rm.convert(source, tmp_path / "d" / f"x{suffix}", shards=6)
    _assert_same(bucket, "d", tmp_path / "d")
    assert rm.convert(source, dst, **options).resumed == 6


def test_a_shard_that_changed_is_written_again(bucket: S3Bucket, tmp_path: Path) -> None:
    source = tmp_path / "in.npy"
    np.save(source, np.zeros((100, 5)))
    dst = f"{bucket.url}/d/x.npy"
    options: dict[str, Any] = {"shards": 3, "storage": bucket.storage}
    rm.convert(source, dst, **options)
    bucket.put("d/x-00001-of-00003.npy", bucket.get("d/x-00001-of-00003.npy") + b"x")
    with pytest.raises(OutputExistsError, match="already exists"):
        rm.convert(source, dst, **options)
    bucket.delete("d/x-00001-of-00003.npy")
    assert rm.convert(source, dst, **options).resumed == 2


def test_an_error_of_the_store_leaves_nothing(bucket: S3Bucket) -> None:
    def refuse(progress: Any) -> None:
        del progress
        bucket.proxy.faults.extend([Status(403)] * 3)

    with pytest.raises(rm.AccessDeniedError, match="access denied"):
        _rows(".tfrecord").save(
            f"{bucket.url}/d/x.tfrecord", storage=bucket.storage, progress=refuse
        )
    bucket.proxy.faults.clear()
    assert [key for key in bucket.keys() if key.endswith("x.tfrecord")] == []  # noqa: SIM118


@pytest.mark.filterwarnings("ignore:the run lock was not deleted")
@pytest.mark.parametrize("suffix", [".npy", ".tfrecord"])
def test_an_object_stays_if_it_cannot_be_checked_after_it_was_replaced(
    bucket: S3Bucket, suffix: str
) -> None:
    url, key = f"{bucket.url}/d/x{suffix}", f"d/x{suffix}"
    options: dict[str, Any] = {"storage": {**bucket.storage, "retries": 0}, "overwrite": True}
    _rows(suffix, 10).save(url, **options)
    old = bucket.get(key)
    bucket.proxy.reset()
    _rows(suffix, 20).save(url, **options)
    new = bucket.get(key)
    sent = max(
        number
        for number, (method, path, _) in enumerate(bucket.proxy.requests)
        if method == "PUT" and path.endswith(key)
    )
    # The lock is looked at again after a second, so that the numbers of requests may differ.
    for request in range(sent + 1, sent + 5):
        _rows(suffix, 10).save(url, **options)
        bucket.proxy.faults.extend([*[None] * request, Status(403)])
        with contextlib.suppress(rm.AccessDeniedError):
            _rows(suffix, 20).save(url, **options)
        bucket.proxy.faults.clear()
        assert bucket.get(key) in (old, new)


def test_old_zarr_shards_that_were_half_deleted_are_deleted_by_the_next_run(
    bucket: S3Bucket,
) -> None:
    url, storage = f"{bucket.url}/d/", {**bucket.storage, "retries": 0}
    options: dict[str, Any] = {"format": "zarr", "storage": storage}
    _rows(".zarr", 12).save(url, shards=3, **options)
    old = {key: bucket.get(key) for key in bucket.keys()}  # noqa: SIM118
    bucket.proxy.reset()
    _rows(".zarr", 20).save(url, shards=2, overwrite=True, **options)
    finished = list(bucket.keys())
    changes = [i for i, each in enumerate(bucket.proxy.requests) if each[0] in ("POST", "DELETE")]
    for next_shards in (2, 4):
        for key in bucket.keys():  # noqa: SIM118
            bucket.delete(key)
        for key, data in old.items():
            bucket.put(key, data)
        # In the middle of them, wherever requests about the lock come in between.
        bucket.proxy.faults.extend([*[None] * changes[-9], Status(403)])
        with contextlib.suppress(rm.AccessDeniedError):
            _rows(".zarr", 20).save(url, shards=2, overwrite=True, **options)
        bucket.proxy.faults.clear()
        _rows(".zarr", 20).save(url, shards=next_shards, overwrite=True, **options)
        assert not [key for key in bucket.keys() if "-of-00003" in key]  # noqa: SIM118
        assert next_shards != 2 or list(bucket.keys()) == finished


def test_unfinished_uploads_of_the_same_output_are_aborted(bucket: S3Bucket) -> None:
    client: Any = bucket._client
    for key in ("d/x.tfrecord", "d/.x.tfrecord.recmap", "d/other.tfrecord", "x.tfrecord"):
        client.create_multipart_upload(Bucket=bucket.name, Key=key)
    _rows(".tfrecord", 10).save(f"{bucket.url}/d/x.tfrecord", storage=bucket.storage)
    assert bucket.uploads() == ["d/other.tfrecord", "x.tfrecord"]


def test_uploads_that_cannot_be_listed_are_a_warning(
    bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing:
        def unfinished(self, prefix: str) -> list[Any]:
            raise rm.AccessDeniedError(f"{prefix}: access denied", url="")

    monkeypatch.setattr("recmap.store.object_path.find_s3_uploads", lambda *_: Refusing())
    with pytest.warns(UserWarning, match="may remain"):
        _rows(".tfrecord", 10).save(f"{bucket.url}/d/x.tfrecord", storage=bucket.storage)


def test_secrets_are_written_nowhere(bucket: S3Bucket) -> None:
    seen: list[bytes] = []

    def look(progress: Any) -> None:
        del progress
        seen.extend(_in_bucket(bucket, "d").values())

    report = _rows(".npy").save(
        f"{bucket.url}/d/", shards=2, workers=1, storage=bucket.storage, progress=look
    )
    seen.extend(_in_bucket(bucket, "d").values())
    secret = bucket.storage["secret_access_key"]
    assert seen
    assert not any(secret.encode() in content for content in seen)
    assert secret not in repr(report) + str(report)


# rm.TFRecordWriter


@pytest.mark.parametrize("shards", [1, 3])
def test_a_writer_sends_its_files(bucket: S3Bucket, tmp_path: Path, shards: int) -> None:
    def write(path: Any, **options: Any) -> None:
        with rm.TFRecordWriter(path, shards=shards, **options) as w:
            for _ in range(3):
                w.write({"x": np.arange(600_000, dtype="float32").reshape(-1, 6)})

    write(tmp_path / "x.tfrecord")
    write(f"{bucket.url}/d/x.tfrecord", storage=bucket.storage)
    _assert_same(bucket, "d", tmp_path)
    with pytest.raises(OutputExistsError, match="already exists"):
        write(f"{bucket.url}/d/x.tfrecord", storage=bucket.storage)
    write(f"{bucket.url}/d/x.tfrecord", storage=bucket.storage, overwrite=True)
    _assert_same(bucket, "d", tmp_path)
    name = "x.tfrecord" if shards == 1 else "x-*-of-*.tfrecord"
    assert len(rm.open(f"{bucket.url}/d/{name}", storage=bucket.storage)) == 300_000


@pytest.mark.parametrize("shards", [1, 3])
def test_a_writer_that_fails_leaves_nothing(bucket: S3Bucket, shards: int) -> None:
    url = f"{bucket.url}/d/x.tfrecord"
    with (
        pytest.raises(_InterruptError),
        rm.TFRecordWriter(url, shards=shards, storage=bucket.storage) as w,
    ):
        w.write({"x": np.arange(900_000).reshape(-1, 3)})
        raise _InterruptError
    w = rm.TFRecordWriter(url, shards=shards, storage=bucket.storage)
    w.write({"x": np.arange(900_000).reshape(-1, 3)})
    thread = w._spooler._thread
    del w
    assert thread is not None
    thread.join()
    assert bucket.keys() == []
    assert bucket.uploads() == []


def test_names_with_a_backslash_are_refused_before_anything_is_written(bucket: S3Bucket) -> None:
    rows = _rows(".npy", 3)
    for name in ("a\\b.npy", "a\\b/", "a\\b.zarr", "a\\b/c.h5"):
        with pytest.raises(rm.OptionError, match="backslash"):
            rows.save(f"{bucket.url}/{name}", storage=bucket.storage)
    with pytest.raises(rm.OptionError, match="backslash"):
        rm.TFRecordWriter(f"{bucket.url}/a\\b.tfrecord", storage=bucket.storage)
    assert bucket.keys() == []
    rows.save("a\\b.npy")  # on disk it is a name like others
    assert len(rm.open("a\\b.npy")) == 3
