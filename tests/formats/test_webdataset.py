"""Tar files of WebDataset."""

from __future__ import annotations

import bz2
import gc
import gzip
import io
import os
import pickle
import tarfile
import warnings
import zlib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.formats.webdataset.tar_index import _encoded, find_samples, scan_tar
from recmap.tfrecord.sidecar import Fingerprint
from tests.buckets import S3Bucket
from tests.local.test_gzip import member

PNG = b"\x89PNG\r\n\x1a\n"


def sample(i: int) -> dict[str, Any]:
    made = {
        "__key__": f"some/where/s{i:03d}",
        "cls": i % 5 - 2,
        "txt": f"röw {i}\n",
        "json": {"number": i},
        "png": PNG + bytes([i]) * (i * 37 % 600),
        "npy": np.arange(6, dtype=">f4").reshape(2, 3) + i,
        "tokens.npy": np.arange(i % 4),
        "grid.npy": np.full((i % 3, 1 + i % 2, 4), i, "u1"),
    }
    if i % 3 == 0:
        made["score.npy"] = np.float32(i)
        made["id"] = 10 * i
    return made


def write(path: str, rows: range) -> None:
    import webdataset  # imports PyTorch if it is installed

    with webdataset.TarWriter(path) as writer:
        for i in rows:
            writer.write(sample(i))


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic | rm.Ragged) else value


def decoded(paths: list[str]) -> list[dict[str, Any]]:
    import webdataset  # imports PyTorch if it is installed

    """Read samples with webdataset, which leaves files open."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        samples = list(webdataset.WebDataset(paths, shardshuffle=False).decode())
        gc.collect()
    return samples


def make_tar(path: str, members: dict[str, bytes], format: int = tarfile.PAX_FORMAT) -> bytes:
    with tarfile.open(path, "w", format=format) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return Path(path).read_bytes()


@pytest.mark.slow
def test_what_webdataset_wrote_is_read_as_it_reads_it() -> None:
    write("x-0.tar", range(10))
    write("x-1.tar", range(10, 25))
    ds = rm.open("x-{0..1}.tar")
    expected = decoded(["x-0.tar", "x-1.tar"])
    assert len(ds) == len(expected) == 25
    assert str(ds.schema["npy"]) == "float32[2,3]"
    assert str(ds.schema["tokens.npy"]) == "int64[*]"
    assert str(ds.schema["grid.npy"]) == "uint8[*,*,4]"
    assert str(ds.schema["score.npy"]) == "float32?"
    assert str(ds.schema["id"]) == "int64?"
    batch = ds[np.random.default_rng(1).permutation(25)]
    for place, row in enumerate(np.random.default_rng(1).permutation(25).tolist()):
        for name in ds.schema:
            wanted = expected[row].get(name)
            wanted = sample(row)["png"] if name == "png" else wanted
            wanted = f'{{"number": {row}}}' if name == "json" else wanted
            assert plain(batch[name][place]) == plain(wanted), name
    assert rm.open("x-*.tar")[3:21]["cls"].tolist() == [i % 5 - 2 for i in range(3, 21)]
    assert "webdataset" in str(ds.info())


def test_webdataset_reads_what_is_written_and_types_survive() -> None:
    columns: dict[str, Any] = {
        "label": np.arange(7, dtype="u1"),
        "image/Left": np.random.default_rng(0).random((7, 3)).astype("f2"),
        "flag": np.arange(7) % 2 == 0,
        "when": np.arange(7).astype("M8[ms]"),
        "png": rm.Ragged.from_bytes([PNG * i for i in range(7)]),
        "caption": rm.Ragged.from_text([f"é{i}" for i in range(7)]),
        "raw": rm.Ragged.from_bytes([b"any bytes"] * 7),
        "tokens": rm.Ragged.from_rows([np.arange(i, dtype="i4") for i in range(7)]),
        "rare": np.ma.masked_array(np.arange(7), np.arange(7) % 2 == 0),
    }
    made = rm.from_arrays(columns)
    assert made.save("out/", format="webdataset", shards=3, verify="full").rows == 7
    shards = sorted(str(path) for path in Path("out").glob("*.tar"))
    assert [os.path.basename(each) for each in shards] == [
        f"data-0000{i}-of-00003.tar" for i in range(3)
    ]
    back = rm.open("out/")
    assert back.schema == made.schema
    for name in columns:
        assert plain(back[:][name]) == plain(made[:][name]), name
    rows = decoded(shards)
    assert [row["label.cls"] for row in rows] == list(range(7))
    assert [row["caption.txt"] for row in rows] == [f"é{i}" for i in range(7)]
    assert np.array_equal(np.stack([row["image.left.npy"] for row in rows]), columns["image/Left"])
    assert ["rare.cls" in row for row in rows] == [i % 2 == 1 for i in range(7)]
    assert len({row["__key__"] for row in rows}) == 7
    parts = [rm.open("out/").select("label").shuffle(seed=1).shard(rank, 2) for rank in range(2)]
    seen = [row for part in parts for batch in part.batch(2) for row in batch["label"].tolist()]
    assert sorted(seen) == list(range(7))
    again = pickle.loads(pickle.dumps(back._source))
    assert again.gather(np.array([5]))["label"].tolist() == [5]


def test_a_file_without_members_of_a_ragged_column_has_null_rows() -> None:
    write("a.tar", range(1, 4))
    with tarfile.open("b.tar", "w") as file:
        member = tarfile.TarInfo("only.txt")
        file.addfile(member, io.BytesIO())
    ds = rm.open(["a.tar", "b.tar"])
    assert ds[2:4]["tokens.npy"].tolist() == [[0, 1, 2], None]
    assert ds[[3, 0]]["tokens.npy"].tolist() == [None, [0]]


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_dialect_of_tar_is_read(format: int) -> None:
    long = "a" * 90 + "/" + "b" * 60
    members = {f"{long}{i}.jpg": bytes([i]) * i for i in range(5)} | {"ü.jpg": b"", "./v.JPG": b"v"}
    if format != tarfile.USTAR_FORMAT:
        members["c" * 300 + ".jpg"] = b"long"
    make_tar("x.tar", members, format)
    ds = rm.open("x.tar")
    assert ds["jpg"][:].tolist() == list(members.values())
    assert ds["__key__"][:].tolist() == [name.rpartition(".")[0] for name in members]


def test_sizes_beyond_octal_folders_and_notes_are_read() -> None:
    content = bytearray(
        make_tar("x.tar", {"a.jpg": b"12345", "__note__": b"", "b/.c": b"", "d": b""})
    )
    content[124:136] = b"\x80" + (5).to_bytes(11, "big")
    told = sum(content[:148]) + sum(content[156:512]) + 8 * 32
    content[148:156] = b"%06o\0 " % told
    Path("x.tar").write_bytes(content)
    assert rm.open("x.tar")[:]["jpg"].tolist() == [b"12345"]
    with tarfile.open("y.tar", "w") as tar:
        os.makedirs("folder.d")
        Path("folder.d/a.txt").write_text("inside")
        tar.add("folder.d")
    assert rm.open("y.tar")[0] == {"__key__": "folder.d/a", "txt": "inside"}


def test_every_cut_is_noticed_and_no_flipped_bit_is_silent() -> None:
    whole = make_tar("x.tar", {"a.txt": b"first", "b.txt": b"x" * 600, "c.bin": b""})
    for end in [*range(0, 3073, 256), 700]:
        Path("cut.tar").write_bytes(whole[:end])
        with pytest.raises(rm.DataError, match="cut|byte") as caught:
            rm.open("cut.tar", format="webdataset")
        assert caught.value.file == "cut.tar"
    with pytest.raises(
        rm.DataError, match=r"member 'b.txt' is cut: it has 600 bytes from byte 1,536"
    ):
        Path("cut.tar").write_bytes(whole[:2000])
        rm.open("cut.tar")
    rng = np.random.default_rng(0)
    for place in rng.integers(0, 512, 200).tolist():
        damaged = bytearray(whole)
        damaged[1024 + place] ^= 1 << int(rng.integers(8))
        Path("bad.tar").write_bytes(damaged)
        if damaged[1024 + place] == whole[1024 + place]:
            continue
        # A checksum in another form may be the same number.
        try:
            found = rm.open("bad.tar", fields={"txt": None})[:]["txt"].tolist()
        except rm.RecmapError:
            continue
        assert found == ["first", "x" * 600, None]


def test_what_is_ambiguous_or_unsafe_is_refused_with_a_remedy() -> None:
    def refused(members: dict[str, bytes]) -> str:
        make_tar("bad.tar", members)
        with pytest.raises(rm.DataError) as caught:
            rm.open("bad.tar")
        assert caught.value.file == "bad.tar"
        return str(caught.value)

    assert "two members with this extension" in refused({"a.jpg": b"", "a.JPG": b""})
    assert "tar --sort=name" in refused({"a.jpg": b"", "b.jpg": b"", "a.cls": b"1"})
    joined = make_tar("x.tar", {"a.jpg": b"1"}) * 2
    Path("joined.tar").write_bytes(joined)
    with pytest.raises(rm.DataError, match="tar --concatenate"):
        rm.open("joined.tar")
    with tarfile.open("links.tar", "w") as tar:
        Path("a.txt").write_text("a")
        os.link("a.txt", "b.txt")
        tar.add("a.txt")
        tar.add("b.txt")
    with pytest.raises(rm.DataError, match="'b.txt' is a link; write it with tar --dereference"):
        rm.open("links.tar")
    info = tarfile.TarInfo("s.bin")
    info.type = tarfile.GNUTYPE_SPARSE
    Path("sparse.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    with pytest.raises(rm.DataError, match="sparse; write it without tar --sparse"):
        rm.open("sparse.tar")
    objects = io.BytesIO()
    np.save(objects, np.array([{}]), allow_pickle=True)
    make_tar(
        "p.tar",
        {"a.txt": b"1", "a.pyd": b"cos\nsystem\n", "a.pth": b"", "a.npy": objects.getvalue()},
    )
    with pytest.warns(
        rm.LeftOutWarning, match=r"'pyd' is a pickle.*'pth'.*'npy' holds Python objects"
    ):
        assert list(rm.open("p.tar").schema) == ["__key__", "txt"]
    with pytest.raises(rm.DataError, match="a pickle can run any code"):
        rm.open("p.tar", fields=["pyd"])
    assert rm.open("p.tar", fields={"pyd": "bytes"})[0]["pyd"] == b"cos\nsystem\n"
    make_tar("n.tar", {"a.cls": b"7", "b.cls": b"cat"})
    ds = rm.open("n.tar")
    assert ds[0]["cls"] == 7
    with pytest.raises(
        rm.DataError, match=r"sample 1, 'b': 'cls' at byte 1,536 is b'cat'"
    ) as caught:
        ds[1]
    assert (caught.value.record, caught.value.field) == (1, "cls")
    assert rm.open("n.tar", fields={"cls": "text"})[1] == {"cls": "cat"}
    Path("x.tar.bz2").write_bytes(bz2.compress(Path("x.tar").read_bytes()))
    with pytest.raises(rm.DataError, match="decompress it first"):
        rm.open("x.tar.bz2", format="webdataset")


def test_columns_that_do_not_fit_are_refused() -> None:
    for columns, why in (
        ({"__key__": ["a", "a"], "x": [1, 2]}, "the key of another row"),
        ({"__key__": ["a.b", "c"], "x": [1, 2]}, "leave out dots"),
        ({"x": [[b"a"], [b"b"]]}, "lists of strings"),
        ({"x.pkl": [b"a", b"b"]}, "pickle"),
        ({"A": [b"a", b"b"], "a": [b"a", b"b"]}, "two columns would be 'a'"),
        ({"x": np.ma.masked_array([1, 2], [True, False])}, "null in every column"),
    ):
        with pytest.raises(rm.ColumnError, match=why):
            rm.from_arrays(columns).save("x.tar")
    assert not os.path.exists("x.tar")


def test_an_index_is_kept_and_not_trusted_when_stale() -> None:
    rm.from_arrays({"x": np.arange(5.0)}).save("x.tar", options={"index": False})
    assert os.listdir() == ["x.tar"]
    assert rm.index("x.tar") == [".x.tar.recmap"]
    kept = Path(".x.tar.recmap").read_bytes()
    scanned, found = scan_tar("x.tar"), find_samples("x.tar")
    assert found.heads == scanned.heads
    assert all(
        np.array_equal(found.members[n].blocks, m.blocks) for n, m in scanned.members.items()
    )
    rm.from_arrays({"x": np.arange(6.0)}).save("x.tar", options={"index": False}, overwrite=True)
    Path(".x.tar.recmap").write_bytes(kept)
    with pytest.warns(rm.StaleIndexWarning, match="changed after it was made"):
        assert len(rm.open("x.tar")) == 6
    rm.index("x.tar")
    whole = Path(".x.tar.recmap").read_bytes()
    for at in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        Path(".x.tar.recmap").write_bytes(damaged)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rm.StaleIndexWarning)
            assert rm.open("x.tar")[:]["x"].tolist() == list(range(6))


def test_an_index_whose_numbers_cannot_be_is_not_used() -> None:
    rm.from_arrays({"x": np.arange(5.0), "i": np.arange(5)}).save("x.tar")
    index = scan_tar("x.tar")
    odd: Any = []
    wrong = [replace(index, description=odd), replace(index, key_ends=index.key_ends.astype("<u4"))]
    for name, members in index.members.items():
        for block in (-1, -(2**54), 2**54 + 1, 2**30):
            blocks = members.blocks.astype(np.int64)
            blocks[1] = block
            wrong.append(replace(index, members={name: replace(members, blocks=blocks)}))
    heads = index.members["x.npy"].heads.astype(np.int64) - 1
    wrong.append(replace(index, members={"x.npy": replace(index.members["x.npy"], heads=heads)}))
    for each in wrong:
        Path(".x.tar.recmap").write_bytes(_encoded(each, Fingerprint.of("x.tar")))
        with pytest.warns(rm.StaleIndexWarning, match="damaged"):
            assert rm.open("x.tar")[:]["x"].tolist() == list(range(5))


def test_rows_are_read_from_a_bucket_and_its_index_from_the_cache(bucket: S3Bucket) -> None:
    x = np.random.default_rng(0).random((40, 500)).astype("f4")
    rm.from_arrays({"x": x, "label": np.arange(40)}).save(
        f"{bucket.url}/x.tar", shards=2, storage=bucket.storage, options={"index": False}
    )
    ds = rm.open(f"{bucket.url}/x-*.tar", storage=bucket.storage)
    rows = [row for batch in ds.shuffle(seed=3).batch(7) for row in batch["label"].tolist()]
    assert sorted(rows) == list(range(40))
    assert np.array_equal(ds[[33, 2, 17]]["x"], x[[33, 2, 17]])
    ds.save("copy.tar", verify="full")
    assert np.array_equal(rm.open("copy.tar")[:]["x"], x)


def npy(array: Any, spaces: int = 0) -> bytes:
    """Return an array as an .npy file, with more spaces than necessary after its header."""
    file = io.BytesIO()
    np.save(file, array)
    content = file.getvalue()
    size = int.from_bytes(content[8:10], "little")
    head = content[10 : 9 + size] + b" " * spaces + b"\n"
    return content[:8] + len(head).to_bytes(2, "little") + head + content[10 + size :]


@pytest.mark.parametrize("files", [3, 40])
def test_rows_of_many_files_are_those_of_each(files: int) -> None:
    rng = np.random.default_rng(files)
    rows: list[dict[str, Any]] = []
    for file in range(files):
        members = {}
        for i in range(rng.integers(0, 9) if file else 4):
            key = f"{file}-{i}" + "é" * int(rng.integers(0, 3))
            array = rng.random((2, 3)).astype(">f4")
            members[f"{key}.npy"] = npy(array, spaces=64 * int(rng.random() < 0.2))
            rows.append({"__key__": key, "npy": array.tolist()})
            if rng.random() < 0.5:
                rows[-1]["txt"] = "x" * int(rng.integers(0, 9))
                members[f"{key}.txt"] = rows[-1]["txt"].encode()
        make_tar(f"{file:02d}.tar", members)
    rows = [{"txt": None, **row} for row in rows]
    ds = rm.open("*.tar")
    for columns in (list(ds.schema), ["npy"], ["__key__"], ["txt", "npy"]):
        chosen = pickle.loads(pickle.dumps(ds.select(columns)))
        for opened in (ds.select(columns), rm.open("*.tar", fields=columns), chosen):
            for count in (1, 2, 30):
                numbers = rng.integers(0, len(rows), count)
                batch = opened[numbers]
                assert list(batch) == columns
                for name in columns:
                    assert batch[name].tolist() == [rows[i][name] for i in numbers.tolist()]
    batches = [*ds.fill_null({"txt": ""}).shuffle(seed=2).batch(3)]
    keys = [key for batch in batches for key in batch["__key__"].tolist()]
    assert sorted(keys) == sorted(row["__key__"] for row in rows)
    by_key = {row["__key__"]: row for row in rows}
    for name in ("npy", "txt"):
        found = [value for batch in batches for value in batch[name].tolist()]
        assert found == [by_key[key][name] or "" for key in keys]


def test_errors_of_rows_of_many_files_name_the_file() -> None:
    for name in "abc":
        key = os.fsdecode(b"\xff") if name == "b" else "0"
        array = npy(np.arange(3.0))
        make_tar(f"{name}.tar", {f"{key}.npy": array, "1.npy": array}, tarfile.GNU_FORMAT)
    ds = rm.open("*.tar")
    assert ds[[0, 3, 5]]["__key__"].tolist() == ["0", "1", "1"]
    with pytest.raises(rm.FieldMismatchError, match=r"b\.tar: row 0: column '__key__' is text"):
        ds[[5, 2, 0]]
    assert rm.open("*.tar", fields={"__key__": "bytes"})[[5, 2]]["__key__"].tolist() == [
        b"1",
        b"\xff",
    ]
    os.truncate("c.tar", 600)
    assert ds[[0, 3]]["npy"].tolist() == [[0, 1, 2]] * 2
    with pytest.raises(rm.CorruptRecordError, match=r"c\.tar: the file shrank"):
        ds[[0, 5]]


@cache
def noise(i: int) -> bytes:
    """Return bytes that hardly become smaller, some of them over a megabyte."""
    size = 3_000_000 if i == 4 else 70_000 + i
    return np.random.default_rng(i).bytes(size)


def flushed(plain: bytes) -> bytes:
    engine = zlib.compressobj(1, wbits=31)
    parts = [
        engine.compress(plain[i : i + 100]) + engine.flush(zlib.Z_SYNC_FLUSH)
        for i in range(0, len(plain), 100)
    ]
    return b"".join(parts) + engine.flush()


def bgzipped(plain: bytes) -> bytes:
    blocks = [plain[i : i + 60_000] for i in range(0, len(plain), 60_000)]
    return b"".join(member(block, "BC") for block in [*blocks, b""])


def test_archives_of_unusual_gzip_are_read_at_random() -> None:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for i in range(40):
            entry = tarfile.TarInfo(f"{i:03d}.bin")
            entry.size = len(noise(i))
            tar.addfile(entry, io.BytesIO(noise(i)))
    data = plain.getvalue()
    middle = len(data) // 2
    comment = b"\x1f\x8b\x08\x10" + bytes(6) + b"c" * 2000 + b"\0"
    packings = {
        "flushed after every few bytes": flushed(data),
        "a long comment": comment + gzip.compress(data)[10:],
        # bgzip ends every file with an empty member.
        "BGZF": bgzipped(data[:middle]) + bgzipped(data[middle:]),
    }
    for packed in packings.values():
        assert gzip.decompress(packed) == data
        Path("x.tar.gz").write_bytes(packed)
        rows = np.random.default_rng(0).permutation(40)
        for _ in range(2):  # with the index that the first leaves
            assert rm.open("x.tar.gz")[rows]["bin"].tolist() == [noise(i) for i in rows.tolist()]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::recmap.errors.SlowOrderWarning")
@pytest.mark.parametrize("name", ["x.tar.gz", "x.tgz", "x"])
def test_archives_of_gzip_are_read_at_random(name: str) -> None:
    import webdataset  # imports PyTorch if it is installed

    with webdataset.TarWriter("x.tar") as writer:
        for i in range(40):
            writer.write(
                {"__key__": f"{i:03d}", "cls": i, "bin": noise(i), "npy": np.arange(3) + i}
            )
    plain = Path("x.tar").read_bytes()
    os.unlink("x.tar")
    packings = {
        "one stream": gzip.compress(plain, 1),
        "members": b"".join(
            gzip.compress(plain[i : i + 99_999], 1) for i in range(0, len(plain), 99_999)
        ),
        "stored": gzip.compress(plain, 0),
    }
    for packed in packings.values():
        Path(name).write_bytes(packed)
        ds = rm.open(name)
        assert str(ds.schema["npy"]) == "int64[3]"
        rows = np.random.default_rng(0).permutation(40)
        batch = ds[rows]
        assert batch["cls"].tolist() == rows.tolist()
        assert batch["bin"].tolist() == [noise(i) for i in rows.tolist()]
        assert batch["npy"].tolist() == [[i, i + 1, i + 2] for i in rows.tolist()]
        assert {f".{name}.recmap", f".{name}.recmap-gz"} <= set(os.listdir())
        again = rm.open(name)
        assert [row["cls"] for row in again] == list(range(40))
        sent = pickle.loads(pickle.dumps(again))
        assert sent[[39, 0]]["bin"].tolist() == [noise(39), noise(0)]
        found = [
            int(cls)
            for batch in again.shuffle(seed=1).map(lambda row: row, workers=2).batch(7)
            for cls in batch["cls"]
        ]
        assert sorted(found) == list(range(40))
        assert again.save("y.npz", verify="full", overwrite=True).rows == 40


@pytest.mark.slow
def test_archives_of_gzip_are_written_for_webdataset() -> None:
    columns = {"bin": [noise(i) for i in range(6)], "label": np.arange(6), "text": ["ä"] * 6}
    made = rm.from_arrays(columns)
    made.save("x.tar.gz", verify="full")
    made.save("out/x.tgz", shards=2, verify="full")
    assert sorted(os.listdir("out"))[-2:] == ["x-00000-of-00002.tgz", "x-00001-of-00002.tgz"]
    assert Path("x.tar.gz").read_bytes()[:2] == b"\x1f\x8b"
    samples = decoded(["x.tar.gz"])
    assert [each["bin"] for each in samples] == columns["bin"]
    assert [each["__key__"] for each in samples] == [f"x-{i:09d}" for i in range(6)]
    for path in ("x.tar.gz", "out/"):
        ds = rm.open(path)
        assert list(ds.schema)[1:] == ["bin", "label", "text"] or "label" in ds.schema
        assert ds["label"].tolist() == list(range(6))
        assert ds[:]["bin"].tolist() == columns["bin"]


@pytest.mark.slow
def test_a_damaged_archive_of_gzip_is_an_error() -> None:
    rm.from_arrays({"bin": [noise(i) for i in range(40)]}).save("x.tar", options={"index": False})
    packed = gzip.compress(Path("x.tar").read_bytes())
    Path("cut.tar.gz").write_bytes(packed[:-5000])
    with pytest.raises(rm.CompressionError, match="cut.tar.gz: the gzip stream ends early"):
        rm.open("cut.tar.gz")
    plain = Path("x.tar").read_bytes()
    Path("short.tar.gz").write_bytes(gzip.compress(plain[:1_000_000]))
    with pytest.raises(rm.DataError, match="short.tar.gz: byte .*is cut"):
        rm.open("short.tar.gz")
    Path("empty.tar.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(rm.DataError, match="nothing in this gzip file"):
        rm.open("empty.tar.gz", format="webdataset")
    Path("x.tar.gz").write_bytes(packed)
    ds = rm.open("x.tar.gz")
    kept = Path(".x.tar.gz.recmap-gz").read_bytes()
    assert ds[39]["bin"] == noise(39)
    damaged = bytearray(packed)
    middle = len(packed) // 2 + 1
    damaged[middle : middle + 40] = bytes(40)
    Path("x.tar.gz").write_bytes(damaged)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rm.StaleIndexWarning)
        with pytest.raises(rm.DataError):
            rm.open("x.tar.gz")[:]
    Path("x.tar.gz").write_bytes(packed)
    Path(".x.tar.gz.recmap-gz").write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    assert rm.open("x.tar.gz")[20]["bin"] == noise(20)
    os.unlink("x.tar.gz")
    rm.from_arrays({"bin": [b"another"]}).save("x.tar.gz")
    Path(".x.tar.gz.recmap-gz").write_bytes(kept)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rm.StaleIndexWarning)
        assert rm.open("x.tar.gz")[0]["bin"] == b"another"


def test_an_archive_of_gzip_in_a_bucket(bucket: S3Bucket) -> None:
    rm.from_arrays({"bin": [noise(i) for i in range(30)]}).save("x.tar.gz")
    bucket.put("x.tar.gz", Path("x.tar.gz").read_bytes())
    ds = rm.open(f"{bucket.url}/x.tar.gz", storage=bucket.storage)
    assert ds[[29, 4]]["bin"].tolist() == [noise(29), noise(4)]
