"""Convert an .npy file to HDF5 with chunks that suit training: whole rows, one batch each."""

from __future__ import annotations

import argparse
import tempfile

import h5py
import numpy as np

import recmap as rm

WIDTH = 100


def make(folder: str, rows: int) -> None:
    values = np.random.default_rng(0).integers(0, 1000, (rows, WIDTH)).astype(np.float32)
    np.save(f"{folder}/x.npy", values)


def answer(folder: str) -> int:
    src, dst = f"{folder}/x.npy", f"{folder}/x.h5"
    return rm.convert(src, dst, compression="gzip", options={"chunk_rows": 256}).rows


def read(folder: str) -> int:
    window = rm.open(f"{folder}/x.h5").shuffle(seed=1, window=4096).batch(256)
    return sum(len(batch["data"]) for batch in window)


def check(folder: str) -> None:
    x = np.load(f"{folder}/x.npy", mmap_mode="r")
    with h5py.File(f"{folder}/x.h5") as file:
        assert file["data"].chunks == (256, WIDTH)
        assert np.array_equal(file["data"][:], x)
    window = rm.open(f"{folder}/x.h5").shuffle(seed=1, window=4096).batch(256)
    read = np.concatenate([batch["data"] for batch in window])
    assert np.array_equal(read[np.lexsort(read.T)], x[np.lexsort(x.T)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        make(folder, rows)
        print(f"wrote {answer(folder):,} rows in gzip chunks of 256 rows")
        print(f"read {read(folder):,} rows, shuffled in windows")
        check(folder)
        print("h5py reads the values of the .npy file; the shuffle gives each row once")


if __name__ == "__main__":
    main()
