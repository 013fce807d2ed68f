"""The command line: its verbs, options, errors and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import recmap as rm
from recmap.cli import main
from tests import wire
from tests.command import run, run_in_new_interpreter


def test_info_shows_rows_and_fields(capsys: pytest.CaptureFixture[str]) -> None:
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write({"x": np.zeros((3, 4), np.float32), "t": [b"a", b"bcd", b""]})
    assert main(["info", "x.tfrecord"]) == 0
    out = capsys.readouterr().out
    assert "rows     3" in out
    assert "x  float32[4]" in out


def test_info_accepts_types_for_raw_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    wire.write("x.tfrecord", wire.example(d=wire.bytes_list(bytes(40))))
    assert main(["info", "x.tfrecord", "--field", "d=float32[10]"]) == 0
    assert "d  float32[10]  (mapped in place)" in capsys.readouterr().out


def test_info_reads_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    np.save("x.npy", x)
    x.tofile("x.bin")
    x.tofile("x.what")
    rm.convert("x.npy", "x.tfrecord")
    for args in (
        ["x.npy"],
        ["x.bin", "--dtype", "float32", "--shape", "-1,4"],
        ["x.what", "--dtype", "float32", "--shape=-1,4"],
        ["x.bin", "--dtype", "float32", "--shape", "5,4", "--format", "raw"],
        ["x.tfrecord"],
    ):
        assert main(["info", *args]) == 0
        out = capsys.readouterr().out
        assert "rows     5" in out
        assert "data  float32[4]" in out
        assert main(["info", "--json", *args]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["rows"] == 5
        assert found["schema"] == {"data": "float32[4]"}
        assert found["files"] == args[:1]


def test_columns_can_come_from_several_files(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("a.npy", np.arange(3))
    np.save("b.npy", np.eye(3))
    assert main(["info", "x=a.npy", "y=b.npy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == {"x": "int64", "y": "float64[3]"}


@pytest.mark.parametrize("name", ["x.bin", "x.f32"])
def test_a_file_without_a_header_suggests_dtype_and_shape(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    np.arange(20, dtype=np.float32).tofile(name)
    assert main(["info", name]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "--dtype float32 --shape -1,10" in error
    assert "its 80 bytes would be 20 of float32, 10 of float64, 40 of int16" in error
    assert main(["info", name, "--dtype", "float32", "--shape", "-1,3"]) == 1
    assert "6 rows of float32[3] (12 bytes each) and 8 bytes more" in capsys.readouterr().err


def test_names_and_paths_that_look_like_options_are_not_rewritten(
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = Path("errors=skip")
    folder.mkdir()
    wire.write(
        folder / "format=raw.tfrecord", wire.example(**{"image/format": wire.bytes_list(b"x" * 8)})
    )
    path = "errors=skip/format=raw.tfrecord"
    assert main(["info", path]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{path}\n")
    assert "--column image/format=TYPE gives it a type" in out


def test_a_string_of_four_bytes_is_not_mistaken_for_a_number(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wire.write("x.tfrecord", wire.example(format=wire.bytes_list(b"jpeg")))
    assert main(["info", "x.tfrecord"]) == 0
    out = capsys.readouterr().out
    assert "perhaps" not in out
    assert "inferred from 1 record\n" in out


def test_a_shape_of_one_number_is_ambiguous_and_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.arange(40, dtype=np.float32).tofile("x.dat")
    assert main(["convert", "x.dat", "x.npy", "--dtype", "float32", "--shape", "10"]) == 2
    assert "such as -1,10" in capsys.readouterr().err
    assert not Path("x.npy").exists()
    for shape, rows in {"-1": 40, "-1,10": 4, "4,10": 4, "2,10": 2}.items():
        assert main(["info", "x.dat", "--dtype", "float32", "--shape", shape, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["rows"] == rows


def test_invalid_options_are_usage_errors_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", np.zeros(3))
    for args in (
        ["info", "x.npy", "--shape", "a,b"],
        ["info", "x.npy", "--dtype", "floaty"],
        ["info", "x.npy", "--format", "floppy"],
        ["info", "x.npy", "--field", "y"],
        ["head", "x.npy", "-n", "-1"],
        ["convert", "x.npy", "y.npy", "--rows", "5"],
        ["convert", "x.npy", "y.npy", "--rows", "::0"],
        ["convert", "x.npy", "y.npy", "--rename", "data"],
        ["convert", "x.npy", "y.npy", "--columns", "z"],
        ["convert", "x.npy", "y.npy", "--align", "64"],
        ["convert", "x.npy", "y.tfrecord", "--option", "colour=red"],
        ["verify", "x.npy"],
    ):
        assert main(args) == 2, args
        error = capsys.readouterr().err
        assert error.startswith(f"recmap {args[0]}: ")
        assert error.count("\n") == 1


def test_index_says_why_a_file_cannot_be_indexed(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", np.arange(3))
    Path("notes.txt").write_text("Not a record in all these words.")
    np.arange(99).tofile("x.bin")
    wire.write("bad.tfrecord", wire.example(a=wire.int64_list(1)))
    Path("bad.tfrecord").write_bytes(b"\0" + Path("bad.tfrecord").read_bytes()[1:])
    for name, told in {
        "x.npy": "x.npy is npy, which needs no index",
        "notes.txt": "notes.txt: not a format recmap reads (looks like text)",
        "x.bin": "x.bin is raw, which needs no index",
        "bad.tfrecord": "bad.tfrecord: record 0 at byte 0: length CRC",
    }.items():
        assert main(["index", name]) > 0
        assert told in capsys.readouterr().err
    assert not list(Path().glob(".*"))


def test_index_writes_an_index_and_verify_counts_the_records(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wire.write("x.tfrecord", *[wire.example(a=wire.int64_list(1))] * 3)
    assert main(["index", "x.tfrecord"]) == 0
    assert main(["index", "--text", "x.tfrecord"]) == 0
    assert capsys.readouterr().out.split() == [".x.tfrecord.recmap", "x.tfrecord.idx"]
    assert main(["verify", "x.tfrecord"]) == 0
    assert "3 sound records, 0 damaged" in capsys.readouterr().out


def test_without_a_verb_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "convert files to another format" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["hed", "x.npy"], "unknown verb 'hed'; did you mean head?"),
        (["convrt"], "unknown verb 'convrt'; did you mean convert?"),
        (["head", "x.npy", "--fild", "y"], "unknown option '--fild'; did you mean --field?"),
        (["stats", "x.npy", "--jsno"], "unknown option '--jsno'; did you mean --json?"),
        (["qqq"], "unknown verb 'qqq'; there are: info, head, "),
    ],
)
def test_unknown_verbs_and_options_suggest_the_nearest(
    args: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(args)
    assert caught.value.code == 2
    assert told in capsys.readouterr().err


def test_the_result_of_rm_verify_prints_like_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wire.write("x.tfrecord", *[wire.example(a=wire.int64_list(1))] * 3)
    content = bytearray(Path("x.tfrecord").read_bytes())
    content[13] ^= 1
    Path("x.tfrecord").write_bytes(content)
    assert main(["verify", "x.tfrecord"]) == 1
    shown = capsys.readouterr().out
    assert shown == f"{rm.verify('x.tfrecord')}\n"
    assert "2 sound records, 1 damaged, in 1 file, " in shown


def test_verify_finds_a_truncated_npy_file(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", np.zeros(100))
    os.truncate("x.npy", 500)
    assert main(["verify", "x.npy"]) == 1
    assert "the file has 500" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["verify x.dat", "verify x.f32", "repair x.dat y.tfrecord"])
def test_errors_do_not_suggest_options_that_the_verb_lacks(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = verb.split()[1]
    np.arange(40, dtype=np.float32).tofile(name)
    assert main(verb.split()) == 2
    error = capsys.readouterr().err
    assert "no TFRecord records were found in it" in error
    assert "--" not in error


def test_verify_says_that_not_all_data_has_checksums(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", np.zeros(3))
    np.savez("x.npz", x=np.zeros(3))
    assert main(["verify", "x.npy", "x.npz"]) == 0
    assert "not all of the data has checksums in 1 of 2 files" in capsys.readouterr().out


def test_repairing_a_sound_file_finds_no_damage(capsys: pytest.CaptureFixture[str]) -> None:
    wire.write("x.tfrecord", wire.example(a=wire.int64_list(1)))
    assert main(["repair", "x.tfrecord", "y.tfrecord"]) == 0
    assert "no damage was found" in capsys.readouterr().out


def test_verify_lists_damage_and_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    frame = wire.frame(wire.example(a=wire.int64_list(1)))
    bad = bytearray(frame * 4)
    bad[len(frame) + 13] ^= 1
    bad[2 * len(frame) + 1] ^= 1
    Path("x.tfrecord").write_bytes(bad)
    assert main(["verify", "x.tfrecord"]) == 1
    out = capsys.readouterr().out
    assert f"x.tfrecord: record 1 at byte {len(frame)}: data CRC" in out
    assert f"x.tfrecord: record 2 at byte {2 * len(frame)}: length CRC" in out
    assert "2 sound records, 2 damaged" in out


def test_verify_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.tfrecord").write_bytes(wire.frame(b"a") + wire.frame(b"b")[:-1])
    assert main(["verify", "x.tfrecord", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["records"], found["size"]) == (False, 1, 33)
    (damage,) = found["damage"]
    assert (damage["file"], damage["record"], damage["byte"]) == ("x.tfrecord", 1, 17)


def test_repair_lists_and_reports_what_was_lost(capsys: pytest.CaptureFixture[str]) -> None:
    frames = [wire.frame(b"%d" % i) for i in range(3)]
    Path("x.tfrecord").write_bytes(frames[0] + frames[1][:-1] + b"?" + frames[2])
    args = ["repair", "x.tfrecord", "y.tfrecord", "--report", "lost.jsonl"]
    assert main(args) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("x.tfrecord: record 1 at byte 17: data CRC is")
    assert out[1] == "2 sound records in y.tfrecord, 34 bytes; damage at 1 place was left out"
    assert Path("y.tfrecord").read_bytes() == frames[0] + frames[2]
    lost = json.loads(Path("lost.jsonl").read_text())
    assert (lost["record"], lost["byte"]) == (1, 17)
    assert main(args) == 2
    assert main([*args, "--overwrite"]) == 0
    Path("lost.jsonl").unlink()
    assert main(args) == 2
    assert "y.tfrecord already exists (use --overwrite" in capsys.readouterr().err


def test_errors_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "nope.tfrecord"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("recmap info: nope.tfrecord: no such file or folder")
    assert error.count("\n") == 1
    with pytest.raises(rm.PathNotFoundError):
        main(["--debug", "info", "nope.tfrecord"])
    wire.write("raw.tfrecord", b"hello")
    assert main(["head", "raw.tfrecord"]) == 1


VERBS = ["info", "head", "stats", "diff", "schema", "convert", "index", "verify", "repair"]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main([verb, "--help"])
    assert done.value.code == 0
    assert "examples:" in capsys.readouterr().out


def test_wrong_usage_exits_with_2() -> None:
    for argv in (["nope"], ["info"]):
        with pytest.raises(SystemExit) as done:
            main(argv)
        assert done.value.code == 2


@pytest.mark.slow
def test_python_dash_m_runs_the_command() -> None:
    wire.write("x.tfrecord", wire.example(a=wire.int64_list(1)))
    done = run_in_new_interpreter("verify", "x.tfrecord")
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 sound record, 0 damaged" in done.stdout


def test_debug_before_or_after_the_verb_shows_the_traceback() -> None:
    for args in (["--debug", "info", "nope"], ["info", "nope", "--debug"]):
        done = run(*args)
        assert done.returncode == 1
        assert "Traceback" in done.stderr
        assert done.stderr.splitlines()[-1].startswith("recmap.errors.PathNotFoundError: nope")


@pytest.mark.slow
def test_a_closed_pipe_is_not_an_error() -> None:
    np.save("x.npy", np.zeros((200_000, 4)))
    command = [sys.executable, "-m", "recmap", "head", "x.npy", "-n", "200000", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b'{"data": [0.0, 0.0, 0.0, 0.0]}\n'
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_errors_suggest_options_in_command_line_syntax(capsys: pytest.CaptureFixture[str]) -> None:
    wire.write("x.tfrecord", wire.example(a=wire.int64_list(1)), wire.example())
    assert main(["head", "x.tfrecord", "--field", "a=int64"]) == 1
    assert "--column a='int64 = 0'" in capsys.readouterr().err
    frame = wire.frame(b"abc")
    Path("bad.tfrecord").write_bytes(frame[:-1] + b"?")
    assert main(["head", "bad.tfrecord"]) == 1
    assert "(use --errors skip to drop it, or recmap repair)" in capsys.readouterr().err
    assert main(["index", "bad.tfrecord", "--text"]) == 1
    assert "(recmap repair copies the sound records to a new file)" in capsys.readouterr().err
    np.save("x.npy", np.zeros(3))
    assert main(["convert", "x.npy", "x.tfrecord"]) == 2
    assert "(use --overwrite to replace it)" in capsys.readouterr().err
    assert main(["convert", "x.npy", "y.npy", "--memory", "1kB"]) == 2
    assert "--memory 1kB is too little" in capsys.readouterr().err
    assert main(["convert", "x.npy", "y.what"]) == 2
    assert "or give --format" in capsys.readouterr().err
    assert main(["convert", "x.npy", "y.npy", "--seed", "1"]) == 2
    assert "--seed 1 is for a shuffle: give --shuffle, too" in capsys.readouterr().err


def test_control_characters_in_files_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write({"\x1b[31mred": [b"\x1b]0;title\x07"], "[bold]": [1]})
    for args in (["info"], ["head"], ["stats"], ["schema"], ["schema", "--as", "tf"]):
        assert main([*args, "x.tfrecord"]) == 0
        out = capsys.readouterr().out
        assert "\x1b" not in out
        assert "red" in out
        assert "[bold]" in out


@pytest.mark.slow
def test_characters_the_terminal_cannot_show_are_escaped() -> None:
    np.save("ä.npy", np.arange(4))
    done = run_in_new_interpreter("info", "ä.npy", env={"PYTHONIOENCODING": "ascii"})
    assert done.stdout.startswith("\\xe4.npy\n")
    done = run_in_new_interpreter("stats", "ä.npy", env={"PYTHONIOENCODING": "ascii"})
    assert "0 @@@@ 3" in done.stdout


@pytest.mark.slow
def test_importing_the_command_line_does_not_import_rich() -> None:
    program = "import sys, recmap.cli; print('rich' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


# What the shell does to the standard streams, and the exit code.
STREAMS = {
    "| true": 0,
    ">&-": 0,
    ">&- 2>&-": 0,
    "2>&-": 0,
    ">/dev/full": 1,
}


@pytest.mark.slow
@pytest.mark.parametrize(("streams", "code"), STREAMS.items(), ids=STREAMS)
def test_closed_and_full_streams_end_without_a_traceback(streams: str, code: int) -> None:
    rm.from_arrays({"x": np.arange(1000)}).save("x.npz")
    script = (
        "import sys\nfrom recmap.cli import main\n"
        "codes = [main(words) for words in (['head', 'x.npz'], ['convert', 'x.npz', 'y.npy'])]\n"
        "sys.exit(max(codes))"
    )
    Path("run.py").write_text(script)
    command = f"set -o pipefail; {sys.executable} run.py {streams}"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr
    assert ended.returncode == code, ended.stderr
    assert rm.diff("x.npz", {"x": rm.open("y.npy")["x"]}).same  # the work was done


def test_a_removed_working_directory_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rm.from_arrays({"x": np.arange(5)}).save(tmp_path / "x.npz")
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert rm.open(tmp_path / "x.npz")[:]["x"].tolist() == [0, 1, 2, 3, 4]
    rm.convert(tmp_path / "x.npz", tmp_path / "y.tfrecord")
    refused = (
        lambda: rm.open("x.npz"),
        lambda: rm.open("*.npz"),
        lambda: rm.open({"a": "x.npy"}),
        lambda: rm.open(tmp_path / "x.npz").save("z.npz"),
        lambda: rm.convert(tmp_path / "x.npz", "z.npz"),
        lambda: rm.index("x.tfrecord"),
        lambda: rm.TFRecordWriter("x.tfrecord"),
        lambda: list(rm.tfrecord.records("x.tfrecord")),
    )
    for call in refused:
        with pytest.raises(rm.PathNotFoundError, match="working directory was removed"):
            call()
    with pytest.raises(rm.PathNotFoundError, match="no such file"):
        rm.open(tmp_path / "missing.npz")


@pytest.mark.parametrize("shards", ["1.5", "2.0", "1,5", "1e3", "1.5 rows", "-1", "9" * 5000])
def test_a_number_of_shards_is_whole(shards: str, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", np.arange(6))
    assert main(["convert", "x.npy", "out/", "--format", "npz", f"--shards={shards}"]) == 2
    assert "shards" in capsys.readouterr().err
    assert not Path("out").exists()


def test_options_of_the_input_and_of_the_output_have_names_of_their_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.arange(6, dtype="float32").tofile("x.bin")
    raw = ["--dtype", "float32", "--shape", "-1,2"]
    for option in ("--input-format", "--format"):  # the latter where there is no output
        assert main(["head", "x.bin", *raw, option, "raw", "--no-crc"]) == 0
    command = ["convert", "x.bin", "y.what", *raw, "--input-format", "raw", "--format", "npy"]
    assert main(command) == 0
    assert np.load("y.what").shape == (3, 2)
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main([*command, "--no-verify"])
    assert "--no-crc" in capsys.readouterr().err
