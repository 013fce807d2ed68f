"""Data in object stores on a Ray cluster whose nodes share nothing but the store."""

from __future__ import annotations

import os
import shutil
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.ray.cluster import Driver
from recmap.ray.parallel_index import find_records
from recmap.store.object_path import ObjectPath
from recmap.store.object_writer import copy_object
from recmap.tfrecord.plain_file import PlainFile
from tests.buckets import HttpFolder, S3Bucket, as_written_locally
from tests.frameworks import ray
from tests.jobs import alive, deadline, meanwhile

pytestmark = [
    # Ray leaves pipes and logs of its processes to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    # Ray reads settings that it has deprecated itself.
    pytest.mark.filterwarnings(r"ignore:.use_\w+. is deprecated:DeprecationWarning"),
]

ROWS = 3000
CANARY = "canary-6d1f0c2e9b"


@pytest.fixture
def nodes(cluster: Any) -> list[Path]:
    """Return the folders of two nodes, each with a home, a cache and a temporary folder."""
    return list(cluster.homes.values())


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    with deadline(120):
        yield


def columns(rows: int = ROWS) -> dict[str, Any]:
    n = np.arange(rows)
    return {
        "x": np.random.default_rng(rows).random((rows, 60), dtype=np.float32),
        "label": n % 7,
        "tokens": rm.Ragged.from_rows([np.arange(i % 5) for i in n]),
        "name": rm.Ragged.from_bytes([b"n%d" % i for i in n]),
    }


def numbers(rows: int = ROWS) -> dict[str, Any]:
    made = columns(rows)
    return {name: made[name] for name in ("x", "label")}


def put(bucket: S3Bucket, name: str, data: dict[str, Any]) -> str:
    """Write a file, copy it and what is beside it to the bucket, and return its URL."""
    folder = Path("made")
    rm.from_arrays(data).save(folder / name)
    for key, content in files_in("made").items():
        bucket.put(f"in/{key}", content)
    shutil.rmtree(folder)
    return f"{bucket.url}/in/{name}"


def files_in(folder: str) -> dict[str, bytes]:
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def objects_in(bucket: S3Bucket, folder: str) -> dict[str, bytes]:
    keys = [key for key in bucket.keys() if key.startswith(f"{folder}/")]  # noqa: SIM118
    return {
        key.removeprefix(f"{folder}/"): as_written_locally(key, bucket.get(key)) for key in keys
    }


def assert_same(bucket: S3Bucket, folder: str, local: str) -> None:
    """Compare the objects of a folder with files, except for manifests, which hold times."""
    found, wanted = (
        {name: data for name, data in each.items() if "manifest.json" not in name}
        for each in (objects_in(bucket, folder), files_in(local))
    )
    assert sorted(found) == sorted(wanted)
    assert found == wanted
    assert bucket.uploads() == []


def test_both_nodes_are_used_and_share_no_folder(nodes: list[Path]) -> None:
    home = ray.remote(lambda: (os.environ["HOME"], os.environ["RECMAP_CACHE"]))
    affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    asked = [
        home.options(scheduling_strategy=affinity(node["NodeID"], soft=False)).remote()
        for node in ray.nodes()
        if node["Alive"] and node["Resources"].get("CPU")
    ]
    assert sorted(ray.get(asked)) == sorted((str(f), str(f / "cache")) for f in nodes)


@pytest.mark.parametrize("dst", ["", "x.npz", "x.bin"])
@pytest.mark.usefixtures("nodes")
def test_a_conversion_in_a_store_has_the_bytes_of_the_local_engine(
    bucket: S3Bucket, dst: str
) -> None:
    data = numbers() if dst == "x.bin" else columns()
    src = put(bucket, "x.tfrecord", data)
    ds = rm.open(src, storage=bucket.storage).skip(10)
    options: dict[str, Any] = {"shards": 3, "storage": bucket.storage}
    ds.save(f"local/{dst}", **options)
    report = ds.save(f"{bucket.url}/out/{dst}", engine="ray", **options)
    assert_same(bucket, "out", "local")
    assert report.rows == ROWS - 10
    assert len(report.files) == 3
    # Either engine resumes what the other has started.
    again = ds.save(f"{bucket.url}/out/{dst}", **options)
    assert again.resumed == 3


@pytest.mark.parametrize("name", ["x.tfrecord", "x.tfrecord.gz", "x.bin", "x.h5", "x.zarr"])
def test_a_store_is_read_on_nodes_that_share_nothing(
    nodes: list[Path], bucket: S3Bucket, name: str
) -> None:
    data = numbers() if name == "x.bin" else columns()
    url = put(bucket, name, data)
    for source in (
        rm.ray.read(url, storage=bucket.storage, override_num_blocks=4),
        rm.ray.read(rm.open(f"{bucket.url}/in/", storage=bucket.storage)),
    ):
        batch = source.take_batch(ROWS)
        assert np.array_equal(batch["x"], data["x"])
        assert np.array_equal(batch["label"], data["label"])
        if "tokens" in data:
            assert [t.tolist() for t in batch["tokens"]] == [t.tolist() for t in data["tokens"]]
            assert list(batch["name"]) == list(data["name"])
        assert [file.rstrip("/") for file in source.input_files()] == [url]
        assert type(source.input_files()[0]) is str
    assert os.listdir() == []
    assert all((folder / "cache").exists() for folder in nodes)


@pytest.mark.usefixtures("nodes")
def test_columns_from_several_objects_are_read(bucket: S3Bucket) -> None:
    data = numbers()
    x = put(bucket, "x.npy", {"x": data["x"]})
    y = put(bucket, "y.npy", {"y": data["label"]})
    ds = rm.open({"x": x, "y": y}, storage=bucket.storage)
    read = rm.ray.read(ds, override_num_blocks=2)
    assert np.array_equal(read.take_batch(ROWS)["y"], data["label"])
    put(bucket, "y.npy", {"y": data["label"] + 1})
    with pytest.raises(rm.ObjectChangedError, match=r"y\.npy: changed while it was open"):
        rm.ray.read(ds).take_all()


@pytest.mark.parametrize("name", ["x.tfrecord", "x.npy"])
@pytest.mark.usefixtures("nodes")
def test_an_object_that_was_replaced_is_not_read(bucket: S3Bucket, name: str) -> None:
    url = put(bucket, name, numbers(500))
    ds = rm.ray.read(url, storage=bucket.storage)
    changed = numbers(500)
    changed["x"] += 1
    put(bucket, name, changed)
    with pytest.raises(rm.ObjectChangedError, match=r"changed while it was open; open it again"):
        ds.take_all()
    # What a user gives is looked up again.
    files = rm.open(url, storage=bucket.storage).files
    put(bucket, name, numbers(400))
    assert rm.ray.read(files).count() == 400
    assert len(rm.open(files)) == 400


@pytest.mark.usefixtures("nodes")
def test_all_nodes_find_the_records_of_one_object(bucket: S3Bucket) -> None:
    words = [bytes(i % 97) for i in range(3000)]
    rm.from_arrays({"word": words}).save("x.tfrecord", options={"index": False})
    bucket.put("x.tfrecord", Path("x.tfrecord").read_bytes())
    local = PlainFile("x.tfrecord", verify=True)
    source = rm.open(f"{bucket.url}/x.tfrecord", storage=bucket.storage)._source
    find_records(ray, Driver.here(), source, span_bytes=40_000)
    (shard,) = source.facts.record_files
    assert shard.known_count() == local.count() == len(words)
    rows = np.arange(local.count())
    data = np.fromfile("x.tfrecord", np.uint8)
    assert np.array_equal(
        shard.index.offsets(data, rows, 1)[0], local.index.offsets(data, rows, 1)[0]
    )


@pytest.mark.usefixtures("nodes")
def test_one_of_input_and_output_may_be_a_file(bucket: S3Bucket) -> None:
    data = numbers()
    rm.from_arrays(data).save("x.npy")
    rm.convert("x.npy", f"{bucket.url}/out/", shards=2, storage=bucket.storage, engine="ray")
    rm.convert(f"{bucket.url}/out/", "back/", shards=2, storage=bucket.storage, engine="ray")
    assert_same(bucket, "out", "back")
    assert np.array_equal(rm.open("back/")["x"][:], data["x"])


def tasks(nodes: list[Path], name: str) -> list[int]:
    """Return the processes of these nodes that run a task."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            ours = any(os.fsencode(node) in (process / "environ").read_bytes() for node in nodes)
            if ours and (process / "cmdline").read_bytes().startswith(f"ray::{name}".encode()):
                found.append(int(process.name))
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue  # it is gone, or not ours
    return found


def test_a_killed_worker_does_not_change_the_objects(nodes: list[Path], bucket: S3Bucket) -> None:
    src = put(bucket, "x.npy", numbers())
    rm.convert(src, "local/", shards=2, storage=bucket.storage)
    bucket.proxy.delay = 0.15
    killed: list[int] = []

    def found() -> bool:
        killed.extend(tasks(nodes, "_write_shard"))
        return bool(killed)

    def kill() -> None:
        os.kill(killed[0], signal.SIGKILL)
        bucket.proxy.delay = 0

    with meanwhile(found, kill):
        rm.convert(src, f"{bucket.url}/out/", shards=2, storage=bucket.storage, engine="ray")
    assert not alive(killed[0])
    assert_same(bucket, "out", "local")


@pytest.mark.usefixtures("nodes")
def test_a_failed_task_stops_the_others_and_aborts_its_upload(bucket: S3Bucket) -> None:
    rm.from_arrays(numbers()).save("x.tfrecord", options={"index": False})
    data = bytearray(Path("x.tfrecord").read_bytes())
    data[-8] ^= 1
    bucket.put("x.tfrecord", bytes(data))
    url = f"{bucket.url}/x.tfrecord"
    for engine in ("local", "ray"):
        with pytest.raises(rm.CorruptRecordError, match=f"^{url}: .*record {ROWS - 1:,} ") as e:
            rm.convert(url, f"{bucket.url}/{engine}.npy", storage=bucket.storage, engine=engine)
        assert (e.value.file, e.value.record) == (url, ROWS - 1)
    assert bucket.keys() == ["x.tfrecord"]
    assert bucket.uploads() == []


@pytest.mark.usefixtures("nodes")
def test_rows_are_shuffled_if_tasks_can_gather_them(
    bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    src = put(bucket, "x.npy", numbers(200))
    ds = rm.open(src, storage=bucket.storage).shuffle(seed=3)
    options: dict[str, Any] = {"shards": 2, "storage": bucket.storage}
    ds.save("local/", **options)
    ds.save(f"{bucket.url}/out/", engine="ray", **options)
    assert_same(bucket, "out", "local")
    monkeypatch.setattr("recmap.conversion.external_shuffle._physical_memory", lambda: 1000)
    with pytest.raises(rm.OptionError, match="needs a folder that all nodes of the cluster see"):
        ds.save(f"{bucket.url}/more/", engine="ray", **options)
    assert objects_in(bucket, "more") == {}


# rm.ray.write


@pytest.mark.parametrize("dst", ["", "x.bin", "x.h5", "x.zarr"])
@pytest.mark.usefixtures("nodes")
def test_written_objects_have_the_bytes_of_written_files(bucket: S3Bucket, dst: str) -> None:
    data = numbers(500)
    rows = ray.data.from_numpy([data["x"][:200], data["x"][200:]])
    local = rm.ray.write(rows, f"local/{dst}")
    report = rm.ray.write(rows, f"{bucket.url}/out/{dst}", storage=bucket.storage)
    assert_same(bucket, "out", "local")
    assert report.rows == 500
    assert len(report.files) == 2
    assert report.written == local.written
    with pytest.raises(rm.OutputExistsError, match="already exists"):
        rm.ray.write(rows, f"{bucket.url}/out/{dst}", storage=bucket.storage)
    # Other names, so the old objects are deleted.
    rm.ray.write(rows, f"local/{dst}", shards=1, overwrite=True)
    rm.ray.write(rows, f"{bucket.url}/out/{dst}", storage=bucket.storage, shards=1, overwrite=True)
    assert_same(bucket, "out", "local")


def test_a_failed_write_leaves_the_old_objects_and_nothing_else(
    nodes: list[Path], bucket: S3Bucket
) -> None:
    url = f"{bucket.url}/out/"
    rm.ray.write(ray.data.range(20), url, storage=bucket.storage, shards=2)
    before = objects_in(bucket, "out")

    def fail(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 15:
            raise ValueError("no")
        return row

    for options in ({"overwrite": True}, {"overwrite": True, "options": {"level": 1}}):
        rows = ray.data.range(20, override_num_blocks=4).map(fail)
        with pytest.raises((ValueError, ray.exceptions.RayTaskError)):
            rm.ray.write(rows, url, storage=bucket.storage, **options)
        assert objects_in(bucket, "out") == before
    assert bucket.uploads() == []
    assert [path for folder in nodes for path in (folder / "tmp").glob(".recmap*")] == []


@pytest.mark.usefixtures("nodes")
def test_objects_that_a_killed_write_left_are_deleted_by_the_next_one(bucket: S3Bucket) -> None:
    left = "out/._manifest.json.stage-0123456789ab/0-abcdef012345.tfrecord"
    other = "out/.data.stage-0123456789ab/x"
    for key in (left, other):
        bucket.put(key, b"left")
    rm.ray.write(ray.data.range(5), f"{bucket.url}/out/", storage=bucket.storage, shards=1)
    keys = bucket.keys()
    assert left not in keys
    assert other in keys
    assert rm.open(f"{bucket.url}/out/", storage=bucket.storage)["id"][:].tolist() == [*range(5)]


@pytest.mark.usefixtures("nodes")
def test_foreign_objects_are_not_replaced(bucket: S3Bucket) -> None:
    bucket.put("out/data-00000-of-00007.tfrecord", b"precious")
    with pytest.raises(rm.OutputExistsError, match="recmap did not write it"):
        rm.ray.write(
            ray.data.range(5), f"{bucket.url}/out/", storage=bucket.storage, overwrite=True
        )
    assert bucket.keys() == ["out/data-00000-of-00007.tfrecord"]


@pytest.mark.usefixtures("nodes")
def test_a_store_that_fails_at_the_end_leaves_no_new_objects(
    bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, storage = f"{bucket.url}/out/", bucket.storage

    def copy(src: ObjectPath, dst: ObjectPath) -> None:
        if dst.name == "data-00001-of-00002.tfrecord":
            raise rm.StoreError(f"{dst}: the store failed", url=str(dst))
        copy_object(src, dst)

    with monkeypatch.context() as patch:
        patch.setattr("recmap.store.object_path.copy_object", copy)
        with pytest.raises(rm.StoreError, match="the store failed"):
            rm.ray.write(ray.data.range(6), url, storage=storage, shards=2)
        assert bucket.keys() == []
        rm.ray.write(ray.data.range(6), url, storage=storage, shards=1)
        with pytest.raises(rm.OutputError, match=r"some may be old and some new; write again"):
            rm.ray.write(ray.data.range(3), url, storage=storage, shards=2, overwrite=True)
    assert [key for key in bucket.keys() if key.endswith(".tfrecord")] == ["out/data.tfrecord"]  # noqa: SIM118
    with pytest.raises(rm.UnfinishedOutputError, match="not finished"):
        rm.open(url, storage=storage)
    rm.ray.write(ray.data.range(3), url, storage=storage, shards=3, overwrite=True)
    assert rm.open(url, storage=storage)["id"][:].tolist() == [*range(3)]


def test_http_servers_are_read_but_not_written(nodes: list[Path], http_folder: HttpFolder) -> None:
    del nodes
    np.save("x.npy", np.arange(50))
    http_folder.put("x.npy", Path("x.npy").read_bytes())
    url = http_folder.url_of("x.npy")
    assert rm.ray.read(url).take_batch(50)["data"].tolist() == list(range(50))
    with pytest.raises(rm.OptionError, match="does not write to them"):
        rm.ray.write(ray.data.range(5), http_folder.url_of("y.npy"))
    with pytest.raises(rm.OptionError, match="does not write to them"):
        rm.convert(url, http_folder.url_of("y.npy"), engine="ray")


# Credentials


@pytest.fixture
def in_environment(bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> S3Bucket:
    """Give this process, but no node, what it takes to reach the bucket."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.storage["endpoint"])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", bucket.storage["access_key_id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", bucket.storage["secret_access_key"])
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return bucket


@pytest.mark.usefixtures("nodes")
def test_credentials_of_the_environment_are_not_sent_to_nodes(in_environment: S3Bucket) -> None:
    bucket = in_environment
    url = put(bucket, "x.npy", numbers(100))
    np.save("y.npy", np.arange(10))
    # The nodes know only where the store is.
    storage = {"endpoint": bucket.storage["endpoint"], "retries": 0}
    assert len(rm.open(url)) == 100
    before = bucket.keys()
    message = r"node .+ may not read it; nothing was done.* as storage=\{\.\.\.\}"
    with pytest.raises(rm.AccessDeniedError, match=message):
        rm.ray.read(url, storage=storage)
    with pytest.raises(rm.AccessDeniedError, match=message):
        rm.open(url, storage=storage).save("local/", engine="ray")
    with pytest.raises(rm.AccessDeniedError, match=message):
        rm.convert("y.npy", f"{bucket.url}/out/", storage=storage, engine="ray")
    with pytest.raises(rm.AccessDeniedError, match=message):
        rm.ray.write(ray.data.range(5), f"{bucket.url}/out/", storage=storage)
    assert bucket.keys() == before
    assert not Path("local").exists()


@pytest.mark.usefixtures("nodes")
def test_a_secret_is_neither_logged_nor_in_errors(bucket: S3Bucket) -> None:
    secret = bucket.storage["secret_access_key"]
    good = put(bucket, "x.tfrecord", numbers(100))
    data = bytearray(bucket.get("in/x.tfrecord"))
    data[-3] ^= 1
    bucket.put("bad/x.tfrecord", bytes(data))
    said: list[str] = []

    def fails(work: Callable[[], Any]) -> None:
        with pytest.raises((rm.RecmapError, ray.exceptions.RayError)) as raised:
            work()
        said.extend(traceback.format_exception(raised.value))
        said.append(repr(raised.value.__dict__))

    bad = f"{bucket.url}/bad/x.tfrecord"
    fails(lambda: rm.ray.read(bad, storage=bucket.storage).take_all())
    fails(
        lambda: rm.convert(bad, f"{bucket.url}/o/", storage=bucket.storage, engine="ray", shards=2)
    )
    ds = rm.ray.read(good, storage=bucket.storage)
    said += [repr(ds), str(ds), str(ds.schema()), repr(ds.input_files()), ds.stats()]
    bucket.delete("in/x.tfrecord")
    fails(ds.take_all)
    wrong = {**bucket.storage, "secret_access_key": CANARY}
    fails(lambda: rm.ray.write(ray.data.range(5), f"{bucket.url}/p/", storage=wrong))
    report = rm.ray.write(ray.data.range(5), f"{bucket.url}/p/", storage=bucket.storage)
    stored = [bucket.get(key).decode("latin-1") for key in bucket.keys()]  # noqa: SIM118
    said += [repr(report), str(report), *stored]
    logs = Path(ray._private.worker._global_node.get_session_dir_path(), "logs")
    written = [path for path in logs.rglob("*") if path.is_file()]
    assert len(written) > 5
    for text in [*said, *(path.read_bytes().decode("latin-1") for path in written)]:
        assert secret not in text
        assert CANARY not in text
