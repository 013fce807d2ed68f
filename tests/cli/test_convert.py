"""recmap convert: its options, and resuming after an interrupt."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest

import recmap as rm
from recmap.cli import main
from tests.buckets import S3Bucket
from tests.command import run, run_in_terminal

X = np.random.default_rng(5).normal(size=(1000, 10)).astype(np.float32)


def test_convert_there_and_back(capsys: pytest.CaptureFixture[str]) -> None:
    X.tofile("x.bin")
    there = ["convert", "x.bin", "out/", "--dtype", "float32", "--shape", "-1,10", "--shards", "4"]
    assert main(there) == 0
    line = capsys.readouterr().out
    assert line.startswith("1,000 rows in 4 files, ")
    assert line.count("\n") == 1
    assert main(["convert", "out/", "back.npy", "--verify", "full"]) == 0
    assert np.load("back.npy").tobytes() == X.tobytes()
    assert main(there) == 0
    assert "everything was already finished" in capsys.readouterr().out


def test_rows_columns_names_and_types_can_be_changed() -> None:
    np.save("a.npy", np.arange(100))
    np.save("b.npy", X[:100])
    args = ["--rows", "-20::2", "--columns", "b,a", "--rename", "a=n", "--cast", "n=int32"]
    assert main(["convert", "a=a.npy", "b=b.npy", "c.tfrecord", *args]) == 0
    ds = rm.open("c.tfrecord")
    assert str(ds.schema) == "Schema(b: float32[10], n: int32)"
    assert ds[:]["n"].tolist() == list(range(80, 100, 2))
    assert main(["convert", "b.npy", "d.npy", "--cast", "data=int8"]) == 1
    assert main(["convert", "b.npy", "d.npy", "--cast", "data=int8", "--casting", "unsafe"]) == 0
    assert np.array_equal(np.load("d.npy"), X[:100].astype(np.int8))


def test_shuffle_writes_the_same_order_as_the_library() -> None:
    np.save("x.npy", X)
    assert main(["convert", "x.npy", "y.npy", "--shuffle", "--seed", "3"]) == 0
    rm.open("x.npy").shuffle(seed=3).save("z.npy")
    assert Path("y.npy").read_bytes() == Path("z.npy").read_bytes()
    assert not np.array_equal(np.load("y.npy"), X)


def test_options_of_the_format_reach_the_writer() -> None:
    np.save("x.npy", X)
    args = ["convert", "x.npy", "y.tfrecord", "--align", "64", "--encoding", "data=raw"]
    assert main([*args, "--no-durable", "--workers", "1", "--no-resume"]) == 0
    assert rm.open("y.tfrecord")["data"].base is not None
    assert main(["convert", "x.npy", "z.tfrecord", "--compression", "gzip"]) == 0
    assert Path("z.tfrecord").read_bytes()[:2] == b"\x1f\x8b"
    assert main(["convert", "x.npy", "w.tfrecord", "--option", "index=false"]) == 0
    assert not Path(".w.tfrecord.recmap").exists()
    assert Path(".y.tfrecord.recmap").exists()


def test_format_and_shards_override_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", X)
    assert main(["convert", "x.npy", "y.what", "--format", "npy"]) == 0
    assert np.array_equal(np.load("y.what"), X)
    assert main(["convert", "x.npy", "parts/", "--shards", "10kB", "--explain"]) == 0
    explanation, report = capsys.readouterr().out.splitlines()[-2:]
    assert explanation.startswith("memory 512 MB: ")
    assert report.startswith("1,000 rows in 4 files")
    assert main(["convert", "x.npy", "rows/", "--shards", "400 rows"]) == 0
    assert [len(rm.open(file)) for file in rm.open("rows/").files] == [400, 400, 200]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--to", "--format"),
        ("--rows-per-shard", "--shards 'N rows'"),
        ("--shard-size=1MB", "--shards SIZE"),
        ("--no-fsync", "--no-durable"),
    ],
)
def test_an_option_that_was_renamed_is_refused_with_its_new_name(
    old: str, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["convert", "x.npy", "y/", old])
    assert f"is now written {new}" in capsys.readouterr().err


def test_existing_files_are_not_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", X)
    Path("y.npy").write_bytes(b"mine")
    assert main(["convert", "x.npy", "y.npy"]) == 2
    assert "(use --overwrite to replace it)" in capsys.readouterr().err
    assert Path("y.npy").read_bytes() == b"mine"
    assert main(["convert", "x.npy", "y.npy", "--overwrite"]) == 0


def test_a_finished_file_is_not_attributed_to_another_conversion(
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.save("x.npy", X)
    for args in (["x.npy", "y.npz"], ["x.npy", "out/", "--shards", "2"]):
        assert main(["convert", *args]) == 0
    capsys.readouterr()
    assert main(["convert", "x.npy", "y.npz"]) == 2
    assert capsys.readouterr().err == (
        "recmap convert: y.npz already exists (use --overwrite to replace it)\n"
    )
    assert main(["convert", "x.npy", "out/", "--shards", "2", "--rows", ":9"]) == 2
    assert "made by another conversion" in capsys.readouterr().err


def test_damage_stops_the_conversion_unless_it_is_skipped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.save("x.npy", X)
    rm.convert("x.npy", "x.tfrecord")
    with open("x.tfrecord", "r+b") as file:
        file.seek(30)
        file.write(b"damage")
    Path(".x.tfrecord.recmap").unlink()
    assert main(["convert", "x.tfrecord", "y.npy"]) == 1
    assert "record 0 at byte 0: data CRC" in capsys.readouterr().err
    assert not Path("y.npy").exists()
    done = run("convert", "x.tfrecord", "y.npy", "--errors", "skip")
    assert done.returncode == 0
    assert "1 bad record was left out" in done.stdout
    assert done.stderr.startswith("recmap: 1 bad record left out, the first: x.tfrecord")
    assert np.array_equal(np.load("y.npy"), X[1:])


def test_a_pipe_gets_one_plain_line() -> None:
    np.save("x.npy", X)
    done = run("convert", "x.npy", "y.tfrecord")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1
    assert done.stdout.rstrip("\n").isprintable()


@pytest.mark.slow
def test_a_terminal_gets_a_progress_bar() -> None:
    np.save("x.npy", X)
    code, shown = run_in_terminal("convert", "x.npy", "y.tfrecord")
    assert code == 0
    assert "1,000 of 1,000 rows" in shown
    assert "B/s" in shown
    assert " left" in shown
    assert "of memory" in shown
    # The bar is erased, and the last line is the report.
    assert "\x1b[2K" in shown
    assert shown.rstrip().splitlines()[-1].endswith("B/s)")


@pytest.mark.slow
def test_after_an_interrupt_the_same_command_resumes() -> None:
    """Interrupt a conversion that gzip makes slow enough."""
    np.save("x.npy", np.random.default_rng(1).integers(0, 200, (400_000, 100), dtype=np.uint8))
    command = ["x.npy", "out/", "--shards", "20000 rows", "--compression", "gzip"]
    command += ["--workers", "1"]
    sent: list[int] = []

    def interrupt(process: int, written: bytes) -> None:
        # While the third file is written, the first is finished and most are not begun.
        told = re.findall(rb"(\d+),000 of 400,000 rows", written)
        if not sent and told and int(told[-1]) >= 60:
            sent.append(process)
            os.kill(process, signal.SIGINT)

    code, shown = run_in_terminal("convert", *command, on_output=interrupt)
    assert sent
    assert code == 130
    last = shown.rstrip().splitlines()[-1]
    assert "recmap convert: interrupted: " in last
    assert "of 20 files are finished" in last
    assert "Traceback" not in shown
    finished = {path.name for path in Path("out").glob("*.tfrecord.gz")}
    assert 0 < len(finished) < 20
    assert not [name for name in os.listdir("out") if name.endswith(".tmp")]
    times = {name: os.stat(f"out/{name}").st_mtime_ns for name in finished}
    done = run("convert", *command)
    assert done.returncode == 0
    assert f"{len(finished)} of the files were already finished" in done.stdout
    assert times == {name: os.stat(f"out/{name}").st_mtime_ns for name in finished}
    command[1] = "undisturbed/"
    assert run("convert", *command).returncode == 0
    for path in Path("undisturbed").glob("*.tfrecord.gz"):
        assert Path("out", path.name).read_bytes() == path.read_bytes()
    assert len(list(Path("out").glob("*.tfrecord.gz"))) == 20


def test_convert_to_a_bucket(bucket: S3Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", X)
    options = [f"--storage={name}={value}" for name, value in bucket.storage.items()]
    assert main(["convert", "x.npy", f"{bucket.url}/d/y.npy", *options]) == 0
    assert f"1,000 rows in {bucket.url}/d/y.npy" in capsys.readouterr().out
    assert main(["convert", f"{bucket.url}/d/y.npy", "back.npy", *options]) == 0
    assert np.load("back.npy").tobytes() == X.tobytes()
    assert main(["convert", "x.npy", f"{bucket.url}/d/y.npy", "--storage", "region"]) == 2
    assert "--storage: write NAME=VALUE" in capsys.readouterr().err


def test_every_verb_for_whole_files_takes_the_options_of_a_store(bucket: S3Bucket) -> None:
    options = [f"--storage={name}={value}" for name, value in bucket.storage.items()]
    rm.from_arrays({"x": X}).save(f"{bucket.url}/x.tfrecord", storage=bucket.storage)
    url = f"{bucket.url}/x.tfrecord"
    for command in (["verify", url], ["repair", url, "sound.tfrecord"], ["info", url]):
        assert main([*command, *options]) == 0
    assert len(rm.open("sound.tfrecord")) == len(X)
    assert main(["index", "--text", url, *options]) == 0


def test_help_advises_against_secrets_on_the_command_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["convert", "--help"])
    assert "AWS_SECRET_ACCESS_KEY" in capsys.readouterr().out
