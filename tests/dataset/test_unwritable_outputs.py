"""An output that cannot be written is an error that names it."""

from __future__ import annotations

import os
import pathlib
import resource
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.dataset.test_wrong_options import data, files, rm

BAD_PLACES = {
    "below a file": "a-file/sub/y",
    "in a system folder": "/proc/y",
    "with too long a name": "y" * 300,
}


@pytest.mark.parametrize("place", BAD_PLACES)
@pytest.mark.parametrize(
    "suffix", [".npy", ".npz", ".h5", ".zarr", ".bin", ".tfrecord", ".tfrecord.gz"]
)
def test_an_output_that_cannot_be_written_is_an_error_that_names_it(
    place: str, suffix: str
) -> None:
    pathlib.Path("a-file").touch()
    dst = BAD_PLACES[place] + suffix
    calls: list[Callable[[], Any]] = [lambda: data().save(dst)]
    if "tfrecord" in suffix:
        files()
        calls.append(lambda: rm.TFRecordWriter(dst))
        calls.append(lambda: rm.tfrecord.write_records(dst, [b"x"]))
        calls.append(lambda: rm.repair("x.tfrecord", dst))
    before = sorted(os.listdir())
    for call in calls:
        with pytest.raises(rm.OutputError, match="cannot be written") as caught:
            call()
        assert os.path.dirname(dst)[:6] in str(caught.value)
        assert caught.value.errno
    assert sorted(os.listdir()) == before


def test_a_folder_is_not_replaced_by_a_file() -> None:
    os.mkdir("folder")
    with pytest.raises(rm.OutputError, match="folder"):
        rm.tfrecord.write_records("folder", [b"x"], overwrite=True)
    assert os.listdir() == ["folder"]


def test_exceeding_the_file_size_limit_is_an_output_error() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(rm.OutputError, match="y.tfrecord"):
            rm.tfrecord.write_records("y.tfrecord", [bytes(1 << 20)])
        with pytest.raises(rm.OutputError, match="(File too large)"):
            rm.from_arrays({"x": np.zeros(1 << 18)}).save("y.npy")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert os.listdir() == []
