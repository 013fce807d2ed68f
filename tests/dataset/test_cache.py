"""``ds.cache()``: the rows, orders and states of the plain chain, made only once."""

from __future__ import annotations

import glob
import importlib
import io
import json
import os
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import recmap as rm
from recmap.model.progress import Progress
from recmap.model.ragged import Ragged
from tests.processes import WITH_WORKERS, running

if TYPE_CHECKING:
    from tests.buckets import HttpFolder

pytestmark = [*WITH_WORKERS, pytest.mark.filterwarnings("ignore::recmap.SlowOrderWarning")]

ROWS = 200


def entries() -> list[str]:
    """The entries of the cache that hold rows, all of them complete."""
    found = glob.glob(f"{glob.escape(os.environ['RECMAP_CACHE'])}/*/*/rows")
    return [os.path.dirname(path) for path in found]


def same(one: Any, other: Any) -> bool:
    """Whether two columns, values or batches are equal, with their types."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[n], other[n]) for n in one)
    if isinstance(one, Ragged):
        return bool(one.tolist() == other.tolist())
    if isinstance(one, np.ma.MaskedArray):
        return bool(one.tolist() == other.tolist() and one.dtype == other.dtype)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return bool(one == other)


def check_same(plain: rm.Dataset, cached: rm.Dataset) -> None:
    """Compare rows in every way to read them."""
    assert plain.schema == cached.schema
    assert len(plain) == len(cached)
    assert same(plain[:], cached[:])
    numbers = np.random.default_rng(0).integers(0, len(plain), 17)
    assert same(plain[numbers], cached[numbers])
    assert same(plain[3:40:7], cached[3:40:7])
    assert same(plain[-1], cached[-1])
    assert all(same(a, b) for a, b in zip(plain, cached, strict=True))
    for window in (None, 16):
        one, other = plain.shuffle(seed=3, window=window), cached.shuffle(seed=3, window=window)
        for _ in range(2):
            assert all(same(a, b) for a, b in zip(one, other, strict=True))
    name = next(iter(plain.schema))
    assert same(plain.select(name)[5:9], cached.select(name)[5:9])


def jpeg(shade: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 6), (shade % 256, 30, 200)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(name="made")
def _made() -> dict[str, np.ndarray | Ragged]:
    numbers = np.random.default_rng(1)
    lengths = numbers.integers(0, 5, ROWS)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return {
        "x": numbers.random((ROWS, 3)).astype(np.float32),
        "id": np.arange(ROWS),
        "ids": Ragged(numbers.integers(0, 9, int(ends[-1])), ends),
    }


def written(made: dict[str, Any]) -> Iterator[rm.Dataset]:
    """Datasets of files that are slow to read in a random order, and of others."""
    options: dict[str, Any] = {"durable": False}
    with h5py.File("x.h5", "w") as file:
        file.create_dataset("x", data=made["x"], chunks=(16, 3), compression="gzip", shuffle=True)
        file.create_dataset("id", data=made["id"].astype(">i4"), chunks=(50,))
    yield rm.open("x.h5")
    ds = rm.from_arrays(made)
    ds.save("x.tfrecord.gz", options=options)
    yield rm.open("x.tfrecord.gz")
    ds.save("x.parquet", options={**options, "row_group_rows": 32})
    yield rm.open("x.parquet")
    nulls = np.ma.array(np.arange(ROWS), mask=np.arange(ROWS) % 7 == 0)
    words = np.array([f"w{i}" for i in range(ROWS)])
    rm.from_arrays({"n": nulls, "t": words, "x": made["x"]}).save("n.parquet", options=options)
    yield rm.open("n.parquet").fill_null(0)
    yield rm.open("x.parquet").select("ids", "id")
    np.save("x.npy", made["x"])
    yield rm.open({"x": "x.npy", "y": "x.npy"})


@pytest.mark.slow
def test_rows_and_orders_are_those_of_the_plain_chain(made: dict[str, Any]) -> None:
    for ds in written(made):
        check_same(ds, ds.cache())
        assert same(ds[:], ds.cache()[:])  # from the files that are there


def test_nulls_are_kept(made: dict[str, Any]) -> None:
    nulls = np.ma.array(np.arange(ROWS), mask=np.arange(ROWS) % 7 == 0)
    rm.from_arrays({"n": nulls, "x": made["x"]}).save("n.parquet", options={"durable": False})
    lists = rm.open(pa.table({"l": [[1, None], None, [2], []] * 9}))
    lists.save("l.parquet", options={"durable": False})
    for ds in (rm.open("n.parquet"), rm.open("l.parquet"), lists):
        cached = ds.cache()
        assert same(ds[:], cached[:])
        assert ds.schema == cached.schema
        assert rm.diff(ds, cached).same
        assert len(entries()) > 0


@pytest.mark.slow
def test_any_verbs_may_come_before_and_after(made: dict[str, Any]) -> None:
    ds = next(written(made))
    chains: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = [
        (lambda d: d.map(double), lambda d: d.shuffle(seed=1)),
        (lambda d: d.filter(lambda row: row["id"] % 3 == 0), lambda d: d.map(double)),
        (lambda d: d.where("id > 50").rename({"x": "pixels"}), lambda d: d.sort("id")),
        (lambda d: d.shuffle(seed=2, reshuffle=False).take(30), lambda d: d.skip(3)),
        (lambda d: d.select([5, 3, 9]).cast({"x": "float64"}), lambda d: d.repeat(3)),
        (lambda d: d.explode("x"), lambda d: d.sample(40, seed=4)),
        (lambda d: d.map(jitter), lambda d: d.map(double)),
        (
            lambda d: rm.concat(d.map(double), d.map(double)),
            lambda d: d.split({"a": 9, "b": 3})["b"],
        ),
        (lambda d: d.take(0), lambda d: d),
    ]
    for before, after in chains:
        plain, cached = after(before(ds)), after(before(ds).cache())
        assert "cache()" in repr(cached)
        assert "cache()" not in repr(plain)
        assert plain.schema == cached.schema
        assert [*map(str, plain)] == [*map(str, cached)]


def test_a_cache_of_a_cache(made: dict[str, Any]) -> None:
    ds = next(written(made))
    assert same(ds.cache().cache()[:], ds[:])
    assert same(rm.concat(ds.cache(), ds.cache()).cache()[:], rm.concat(ds, ds)[:])


def test_random_values_are_those_of_the_first_epoch_also_in_a_branch(made: dict[str, Any]) -> None:
    ds = next(written(made))
    plain, cached = ds.map(jitter), ds.map(jitter).cache()
    first = [row["x"].tolist() for row in plain]
    assert first == [row["x"].tolist() for row in cached] == [row["x"].tolist() for row in cached]
    assert first != [row["x"].tolist() for row in plain]
    one, other = rm.concat(ds.map(double), ds.map(jitter)), rm.concat(ds.map(double), cached)
    assert [row["x"].tolist() for row in one] == [row["x"].tolist() for row in other]
    after = ds.cache().map(jitter)
    assert first == [row["x"].tolist() for row in after]
    assert first != [row["x"].tolist() for row in after]  # new ones in the second epoch


def double(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "x": row["x"] * 2}


def jitter(row: dict[str, Any], rng: Any) -> dict[str, Any]:
    return {**row, "x": row["x"] + rng.random()}


def test_states_are_the_same_with_and_without_a_cache(made: dict[str, Any]) -> None:
    ds = next(written(made))

    def chain(ds: rm.Dataset) -> rm.Stream:
        return ds.shuffle(seed=5).batch(7).shard(1, 2).repeat(2)

    for at in (0, 1, 9, 15, 20):
        plain, cached = chain(ds), chain(ds.cache())
        for stream in (plain, cached):
            rows = iter(stream)
            for _ in range(at):
                next(rows)
        state = json.loads(json.dumps(cached.state()))
        assert state == plain.state()
        for each in glob.glob(f"{glob.escape(os.environ['RECMAP_CACHE'])}/*/*/object.json"):
            os.unlink(each)  # nothing is cached any more
        resumed, expected = chain(ds.cache()), chain(ds)
        resumed.restore(state)
        expected.restore(state)
        assert [b["id"].tolist() for b in resumed] == [b["id"].tolist() for b in expected]


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["fork:2", "spawn:2", "threads:2"])
def test_workers_before_fill_the_cache_and_workers_after_read_it(
    made: dict[str, Any], workers: str
) -> None:
    ds = next(written(made))
    plain = ds.map(double).shuffle(seed=1).batch(9).map(double)
    cached = ds.map(double, workers=workers).cache().shuffle(seed=1).batch(9)
    for each in (cached.map(double), cached.map(double, workers=workers)):
        assert all(same(a, b) for a, b in zip(plain, each, strict=True))
        plain = ds.map(double).shuffle(seed=1).batch(9).map(double)
    again = pickle.loads(pickle.dumps(ds.map(double).cache()))
    assert same(again[:], ds.map(double)[:])


def test_nothing_is_made_before_a_row_is_needed_and_nothing_twice(made: dict[str, Any]) -> None:
    ds = next(written(made))

    def counted(row: dict[str, Any]) -> dict[str, Any]:
        with open("calls", "a") as file:
            file.write(".")
        return row

    open("calls", "w").close()
    cached = ds.map(counted).cache()
    assert "map(test_nothing_is_made" in repr(cached)
    shuffled = cached.shuffle(seed=1)
    assert len(shuffled) == ROWS
    assert os.path.getsize("calls") == 0
    assert not entries()
    list(shuffled)
    made_in = os.path.getsize("calls")
    assert ROWS <= made_in < 2 * ROWS  # some are called twice, to see what they return
    list(shuffled)
    list(ds.map(counted).cache().shuffle(seed=2).batch(4))
    assert os.path.getsize("calls") == made_in
    assert "float32[3]  [3]" in repr(cached)  # the first rows, which are there now


def test_progress_is_shown(made: dict[str, Any]) -> None:
    seen: list[Progress] = []
    ds = next(written(made))
    for memory in (None, "1MB"):
        ds.cache(progress=seen.append, memory=memory)[0]
        assert seen[-1].rows == ROWS
        seen.clear()


def test_decoded_images_and_padded_rows_come_from_the_cache(made: dict[str, Any]) -> None:
    images = [jpeg(i) for i in range(40)]
    with rm.TFRecordWriter("i.tfrecord") as file:
        file.write({"image": images, "label": np.arange(40)})
    for size in ((4, 5), None):
        plain = rm.open("i.tfrecord").decode_image("image", size, dtype="uint8")
        assert same(plain[:], plain.cache()[:])
    ds = rm.from_arrays(made)
    ds.save("x.parquet", options={"durable": False})
    ds = rm.open("x.parquet")
    for one, other in zip(
        ds.shuffle(seed=1).batch(8, pad="longest"),
        ds.cache().shuffle(seed=1).batch(8, pad="longest"),
        strict=True,
    ):
        assert same(one, other)


def test_saved_and_compared_like_any_dataset(made: dict[str, Any]) -> None:
    ds = next(written(made))
    ds.cache().shuffle(seed=1).save("a.npz", options={"durable": False})
    ds.shuffle(seed=1).save("b.npz", options={"durable": False})
    assert same(rm.open("a.npz")[:], rm.open("b.npz")[:])
    assert rm.diff(ds, ds.cache()).same


def test_what_has_changed_is_made_again() -> None:
    np.save("x.npy", np.arange(5))
    Path("steps.py").write_text("SCALE = 2\ndef helper(x):\n    return x * SCALE\n")
    sys.path.insert(0, os.getcwd())
    try:
        steps: Any = importlib.import_module("steps")

        def read() -> list[int]:
            chain = rm.open("x.npy").map(lambda row: {"y": steps.helper(row["data"])})
            return [row["y"].item() for row in chain.cache()]

        assert read() == [0, 2, 4, 6, 8]
        assert len(entries()) == 1
        assert read() == [0, 2, 4, 6, 8]
        assert len(entries()) == 1
        # The code of another module, which is imported again.
        Path("steps.py").write_text("SCALE = 3\ndef helper(x):\n    return x * SCALE\n")
        os.utime("steps.py", (1, 1))
        importlib.reload(steps)
        assert read() == [0, 3, 6, 9, 12]
        # A file of the same size and, as far as a program can say, the same time.
        before = os.stat("x.npy")
        np.save("x.npy", np.arange(5) + 1)
        os.utime("x.npy", ns=(before.st_atime_ns, before.st_mtime_ns))
        assert read() == [3, 6, 9, 12, 15]
        for add in (1, 2):
            chain = rm.open("x.npy").map(lambda row, add=add: {"y": row["data"] + add})
            assert chain.cache()[0]["y"] == 1 + add
    finally:
        sys.path.remove(os.getcwd())
        sys.modules.pop("steps", None)


@pytest.mark.slow
def test_rows_that_cannot_be_recognized_are_kept_by_this_process_only() -> None:
    values = np.arange(6)
    cached = rm.from_arrays({"x": values}).cache()
    assert cached[:]["x"].tolist() == [*range(6)]
    assert len(entries()) == 1
    values += 1
    assert rm.from_arrays({"x": values}).cache()[:]["x"].tolist() == [*range(1, 7)]
    np.save("x.npy", np.arange(3))
    with open(os.devnull, "rb") as unpicklable:
        held = rm.open("x.npy").map(lambda row: {"y": row["data"] + unpicklable.fileno() * 0})
        assert held.cache()[:]["y"].tolist() == [0, 1, 2]
    del cached, held
    program = (
        "import numpy as np, recmap as rm\n"
        "ds = rm.from_arrays({'x': np.arange(3)}).cache()\n"
        "print(ds[1])\n"
    )
    before = set(entries())
    with running(program) as process:
        assert process.wait() == 0
    assert set(entries()) <= before


@pytest.mark.slow
def test_in_memory_if_it_fits(made: dict[str, Any]) -> None:
    for ds in written(made):
        check_same(ds, ds.cache(memory="10MB"))
    assert not entries()
    assert rm.open("x.parquet").take(0).cache(memory="1MB")[:]["ids"].tolist() == []
    ds = rm.open("x.h5")
    check_same(ds, ds.cache(memory="1kB"))
    assert len(entries()) == 1
    cached = ds.cache(memory="1MB").shuffle(seed=1).batch(9).map(double, workers="fork:2")
    plain = ds.shuffle(seed=1).batch(9).map(double)
    assert all(same(a, b) for a, b in zip(plain, cached, strict=True))


def test_without_room_rows_are_read_without_a_cache(
    made: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = next(written(made))
    for size, why in (("1kB", "give it more with RECMAP_CACHE_SIZE"), ("0", "cache is off")):
        monkeypatch.setenv("RECMAP_CACHE_SIZE", size)
        cached = ds.cache().shuffle(seed=1)
        with pytest.warns(rm.NoCacheWarning, match=why):
            assert same(cached[:], ds.shuffle(seed=1)[:])
        with warnings.catch_warnings():
            warnings.simplefilter("error", rm.NoCacheWarning)
            assert len(list(cached.batch(50))) == 4  # it warned once
    assert not entries()
    # What rows take is not known before they are made.
    monkeypatch.setenv("RECMAP_CACHE_SIZE", "300kB")
    long = ds.map(lambda row: {"t": "x" * (1 if row["id"] < 100 else 20_000)}).cache()
    with pytest.warns(rm.NoCacheWarning, match="RECMAP_CACHE_SIZE"):
        assert len(long[150]["t"]) == 20_000
    assert not entries()


@pytest.mark.slow
def test_a_full_disk_is_a_warning() -> None:
    rm.from_arrays({"x": np.zeros((3_000, 1_000), np.uint8)}).save("x.parquet")
    program = """
import resource, signal, warnings
import recmap as rm
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000))
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    ds = rm.open("x.parquet").cache().shuffle(seed=1)
    print(sum(len(batch["x"]) for batch in ds.batch(100)), [str(w.message) for w in found])
"""
    with running(program) as process:
        out, err = process.communicate()
    assert out.startswith("3000 "), err
    assert "the disk is full" in out
    assert not entries()


def test_a_damaged_cache_is_made_again(made: dict[str, Any]) -> None:
    ds = next(written(made))
    plain = ds[:]
    for damage in ("flip", "cut", "remove", "beside", "about"):
        assert same(ds.cache()[:], plain)
        for entry in entries():
            spoil(entry, damage)
        assert same(ds.cache()[:], plain), damage
    # Of records that are open, too.
    rm.from_arrays(made).save("x.parquet", options={"durable": False})
    ds = rm.open("x.parquet")
    cached, plain = ds.cache(), ds[:]
    assert same(cached[:], plain)
    for file in glob.glob(f"{glob.escape(os.environ['RECMAP_CACHE'])}/*/*/rows/*.tfrecord"):
        flip(file)
    assert same(cached[:], plain)
    assert same(cached[[7, 5]], ds[[7, 5]])


def spoil(entry: str, damage: str) -> None:
    [file] = glob.glob(f"{glob.escape(entry)}/rows/data.npy")
    if damage == "flip":
        flip(file)
    elif damage == "cut":
        os.truncate(file, os.path.getsize(file) // 2)
    elif damage == "remove":
        os.unlink(file)
    elif damage == "beside":
        for name in os.listdir(os.path.dirname(file)):
            if name != "data.npy":
                os.unlink(os.path.join(os.path.dirname(file), name))
    else:
        Path(entry, "object.json").write_text("{")


def flip(path: str) -> None:
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) // 2)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 0x10]))


def test_rows_of_a_store_are_fetched_once(http_folder: HttpFolder, made: dict[str, Any]) -> None:
    file = io.BytesIO()
    np.savez_compressed(file, x=made["x"], id=made["id"])
    http_folder.put("x.npz", file.getvalue())

    def opened() -> rm.Dataset:
        return rm.open(http_folder.url_of("x.npz"), storage=http_folder.storage)

    check_same(opened(), opened().cache())
    with warnings.catch_warnings():
        warnings.simplefilter("error", rm.SlowOrderWarning)
        next(iter(opened().cache().shuffle(seed=2).batch(10)))
    cached = opened().cache()
    http_folder.proxy.reset()
    assert len(list(cached.shuffle(seed=1).batch(10))) == ROWS // 10
    assert http_folder.proxy.count("GET") == 0


def test_where_a_cache_is_of_no_use_it_is_refused() -> None:
    ds = rm.from_arrays({"x": np.arange(5)})
    chains: list[tuple[str, Callable[[], Any]]] = [
        ("comes before shuffle", lambda: ds.shuffle(seed=1).cache()),
        ("comes before shuffle", lambda: ds.shuffle(seed=1).map(double).cache()),
        ("comes before sample", lambda: ds.sample(3, seed=1).cache()),
        ("comes before mix", lambda: rm.mix(ds, ds).cache()),
        ("before repeat", lambda: ds.repeat().cache()),
        ("before repeat", lambda: ds.filter(bool).repeat().cache()),
        ("512MB", lambda: ds.cache(memory="lots")),
        ("progress", lambda: ds.cache(progress="yes")),  # type: ignore[arg-type]
    ]
    for why, chain in chains:
        with pytest.raises(rm.RecmapError, match=why):
            chain()


def test_a_state_of_filtered_rows_is_not_taken_with_and_without_a_cache() -> None:
    rm.from_arrays({"x": np.arange(20)}).save("x.tfrecord")
    plain = rm.open("x.tfrecord").filter(is_even)
    runs = [plain.batch(3), plain.cache().batch(3)]
    for run, other in (runs, runs[::-1]):
        batches = iter(run)
        next(batches)
        with pytest.raises(rm.OptionError, match=r"cache\(\)"):
            other.restore(run.state())


def is_even(row: dict[str, Any]) -> bool:
    return bool(row["x"] % 2 == 0)
