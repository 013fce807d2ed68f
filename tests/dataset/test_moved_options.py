"""Options that rm.convert and ds.save once had are refused, with the call to write instead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import recmap as rm

ROWS = rm.from_arrays({"a": np.arange(6), "b": np.arange(6.0)})
# The old options, and the verbs that the error names.
VERBS: list[tuple[dict[str, Any], str]] = [
    ({"columns": ["b", "a"]}, ".select('b', 'a')"),
    ({"columns": "b"}, ".select('b')"),
    ({"rows": slice(4)}, ".take(4)"),
    ({"rows": slice(1, 4)}, ".skip(1).take(3)"),
    ({"rows": slice(None, None, -1)}, ".select(slice(None, None, -1))"),
    ({"rename": {"a": "c"}}, ".rename({'a': 'c'})"),
    ({"cast": {"a": "float32"}}, ".cast({'a': 'float32'})"),
    ({"casting": "unsafe", "cast": {"b": "u1"}}, ".cast({'b': 'u1'}, casting='unsafe')"),
    ({"shuffle": True}, ".shuffle()"),
    ({"seed": 3, "shuffle": True}, ".shuffle(seed=3)"),
    ({"where": "a > 3"}, ".where('a > 3')"),
    ({"shuffle": True, "seed": 3, "columns": ["a"]}, ".select('a').shuffle(seed=3)"),
]


@pytest.mark.parametrize(("options", "verbs"), VERBS, ids=str)
def test_options_that_became_verbs_are_refused_with_the_chain(
    options: dict[str, Any], verbs: str
) -> None:
    ROWS.save("x.npz")
    save: Any = ROWS.save
    with pytest.raises(rm.OptionTypeError) as caught:
        save("y.npz", **options)
    assert str(caught.value).endswith(f": write ds{verbs}.save(dst)")
    with pytest.raises(rm.OptionTypeError) as caught:
        rm.convert("x.npz", "y.npz", **options)
    written = str(caught.value).partition(": write ")[2]
    assert written == f"rm.open(src){verbs}.save(dst)"
    # What the error says works.
    eval(written, {"rm": rm, "src": "x.npz", "dst": "y.npz"})
    assert len(rm.open("y.npz"))


@pytest.mark.parametrize(
    ("options", "written"),
    [
        ({"source": {"dtype": "f4"}}, "rm.convert(src, dst, dtype='f4')"),
        ({"source": {"format": "raw", "dtype": "f4"}}, "rm.open(src, format='raw', dtype='f4')"),
        ({"source": {"storage": {"key": "secret"}}}, "rm.open(src, storage={...}).save(dst)"),
        ({"dtype": "f4", "shuffle": True}, "rm.open(src, dtype='f4').shuffle().save(dst)"),
        ({"durable": False}, "options={'durable': False}"),
        ({"name": "faces"}, "options={'name': 'faces'}"),
        ({"split": "train", "format": "tfds"}, "options={'split': 'train'} for the one to write"),
    ],
    ids=str,
)
def test_other_old_options_are_refused_with_the_new_spelling(
    options: dict[str, Any], written: str
) -> None:
    with pytest.raises(rm.OptionError) as caught:
        rm.convert("x.dat", "y.npz", **options)
    assert written in str(caught.value)
    assert "secret" not in str(caught.value)


def test_convert_takes_the_options_of_open() -> None:
    np.arange(6, dtype="float32").tofile("x.dat")
    rm.convert("x.dat", "y.npy", dtype="float32", shape=(-1, 2), offset=8)
    assert np.load("y.npy").tolist() == [[2, 3], [4, 5]]
    ROWS.save("x.npz")
    assert rm.convert("x.npz", "z.npy", fields=["a"]).rows == 6
    # format is that of the output.
    rm.open("x.dat", format="raw", dtype="float32").save("w", format="npy")
    assert np.load("w").tolist() == [0, 1, 2, 3, 4, 5]


def test_columns_of_convert_may_give_types() -> None:
    rows = [np.ones(2, np.float32).tobytes()] * 3
    rm.from_arrays({"x": rm.Ragged.from_bytes(rows)}).save("x.tfrecord")
    rm.convert("x.tfrecord", "x.npy", columns={"x": "float32[2]"})
    assert np.load("x.npy").tolist() == [[1, 1]] * 3


def test_options_of_other_libraries_are_refused_with_the_word_here() -> None:
    np.save("x.npy", np.arange(3))
    save: Any = ROWS.save
    convert: Any = rm.convert
    for option, advice in [
        ("num_proc", "use 'workers'"),
        ("n_jobs", "use 'workers'"),
        ("num_shards", "use 'shards'"),
        ("batch_size", "memory bounds how many rows are held"),
        ("verbose", "use 'progress'"),
        ("overwrit", "did you mean 'overwrite'"),
    ]:
        with pytest.raises(rm.OptionTypeError, match=f"save: .*{option!r}.*{advice}"):
            save("y.npz", **{option: 2})
        with pytest.raises(rm.OptionTypeError, match=f"rm.convert: .*{option!r}.*{advice}"):
            convert("x.npy", "y.npz", **{option: 2})
