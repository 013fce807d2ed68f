"""The package as a whole: its names, its imports, its columns in other hands."""

from __future__ import annotations

import subprocess
import sys

import jax
import numpy as np
import torch

import recmap as rm
from recmap import errors


def test_exported_names_are_sorted_and_there() -> None:
    for module in (rm, errors, rm.tfrecord):
        assert module.__all__ == sorted(module.__all__)
        assert all(hasattr(module, name) for name in module.__all__)
    assert set(errors.__all__) <= set(rm.__all__)


def test_every_error_is_a_recmap_error_and_a_builtin() -> None:
    for name in errors.__all__:
        kind = getattr(errors, name)
        if name.endswith("Warning"):
            assert issubclass(kind, UserWarning)
        elif kind is not errors.RecmapError:
            assert issubclass(kind, errors.RecmapError)
            assert issubclass(kind, ValueError | OSError | LookupError | ImportError | RuntimeError)
            assert str(kind("what is wrong")) == "what is wrong"


def packages(program: str) -> set[str]:
    """Those of others that a program has imported."""
    shown = "; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    run = subprocess.run(
        [sys.executable, "-c", f"import sys, recmap{program}{shown}"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = set(run.stdout.split()) - set(sys.stdlib_module_names)
    return {name for name in found if name[0] != "_"}


def test_importing_recmap_imports_nothing_yet() -> None:
    assert packages("") == {"recmap"}
    everything = "; [getattr(recmap, name) for name in recmap.__all__]"
    assert packages(everything) == {"isal", "numpy", "recmap", "zlib_ng"}


def test_names_that_are_found_late_are_listed_and_others_refused() -> None:
    assert {*rm.__all__, "ray", "tf"} <= set(dir(rm))
    assert rm.open is rm.open
    run = subprocess.run(
        [sys.executable, "-c", "import recmap; recmap.conver"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "has no attribute 'conver'. Did you mean: 'convert'?" in run.stderr


def test_columns_are_taken_by_pytorch_and_jax() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    with rm.TFRecordWriter("x.tfrecord", align=64) as w:
        w.write({"x": x})
    batch = rm.open("x.tfrecord")[:]
    tensor = torch.from_numpy(batch["x"])
    assert tensor.data_ptr() == batch["x"].ctypes.data
    assert tensor.tolist() == x.tolist()
    assert np.array_equal(jax.numpy.asarray(rm.open("x.tfrecord")["x"]), x)
