"""The verbs of training: what is done to rows on their way, noted verb by verb.

A verb only notes what is wanted and gives a new pipeline; iterating reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Never

import numpy.typing as npt

from recmap.model.arguments import unknown_option
from recmap.model.schema import FieldLike

if TYPE_CHECKING:
    # Frameworks, and what training takes, are imported by those who ask for them.
    from recmap.adapters.features_and_labels import Names
    from recmap.adapters.jax import JaxBatches
    from recmap.adapters.keras import KerasBatches
    from recmap.adapters.tf_tensors import tf
    from recmap.adapters.torch import TorchRows, TorchStream
    from recmap.pipeline.pipeline import Pipeline
    from recmap.pipeline.plan import Plan
    from recmap.pipeline.sharding import Even
    from recmap.pipeline.transforms.padding import PadLike
    from recmap.pipeline.verbs import RowNumbers

__all__ = ["Verbs"]


class Verbs:
    """The verbs that datasets and pipelines share. Each gives a new pipeline."""

    @property
    def plan(self) -> Plan:
        """What the verbs so far came to."""
        raise NotImplementedError

    def pipeline(self) -> Pipeline:
        """The rows as a pipeline, though there may be no verb yet."""
        from recmap.pipeline.pipeline import Pipeline

        return Pipeline(self.plan)

    def _then(self, verb: str, *arguments: Any) -> Pipeline:
        # Most who open files do not train: what it takes is imported by those who do.
        from recmap.pipeline.pipeline import chained

        return chained(verb, self.plan, *arguments)

    def select(self, what: str | Sequence[str] | RowNumbers, *more: str) -> Pipeline:
        """Some columns, by name, or some rows, by number.

        >>> import numpy as np, recmap as rm
        >>> ds = rm.from_arrays({"x": np.arange(5), "y": np.arange(5) * 10})
        >>> [row["y"].item() for row in ds.select("y").select([4, 0])]
        [40, 0]
        """
        return self._then("select", what, more)

    def filter(self, fn: Callable[..., Any], *, batched: bool = False, seed: int = 0) -> Pipeline:
        """The rows for which ``fn(row)`` is true; with ``batched``, ``fn(columns)`` gives
        a mask for many rows at once.

        >>> import numpy as np, recmap as rm
        >>> ds = rm.from_arrays({"x": np.arange(6)})
        >>> [row["x"].item() for row in ds.filter(lambda row: row["x"] % 2 == 1)]
        [1, 3, 5]
        """
        return self._then("filter_rows", fn, batched, seed)

    def shuffle(
        self,
        *positional: Never,
        seed: int | None = None,
        window: int | None = None,
        reshuffle: bool = True,
        **unknown: Never,
    ) -> Pipeline:
        """All rows in a random order, another one in every epoch. The shuffle is exact and
        needs no buffer, so there is no size to give.

        Without a ``seed`` one is drawn: the state keeps it, and a pipeline that was not
        given one either takes it over in ``restore()``. Several ranks need the same seed.
        With ``reshuffle=False`` all epochs have one order.

        ``window`` is for what is read badly at random, such as compressed files: blocks
        of neighbours in a random order, mixed within windows of so many rows, which are
        held in memory.

        >>> import numpy as np, recmap as rm
        >>> shuffled = rm.from_arrays({"x": np.arange(5)}).shuffle(seed=1)
        >>> [[row["x"].item() for row in shuffled] for epoch in range(2)]
        [[2, 0, 1, 4, 3], [0, 2, 1, 3, 4]]
        """
        for name in unknown:
            if name != "buffer_size":  # tf.data's name for the number it takes first
                raise unknown_option(name, ("reshuffle", "seed", "window"), "shuffle: ")
        sizes = (*positional, *unknown.values())
        return self._then("shuffle", sizes, seed, window, reshuffle)

    def map(
        self,
        fn: Callable[..., Any],
        *,
        workers: int | str | None = None,
        batched: bool = False,
        fields: Mapping[str, FieldLike] | None = None,
        seed: int = 0,
    ) -> Pipeline:
        """``fn`` of every row: a dict of values in, a dict out. After ``batch``, or with
        ``batched``, it gets a dict of columns of many rows.

        ``workers=4`` runs it in four processes that share memory with this one;
        ``"threads:4"`` in threads, ``"fork:4"`` and ``"spawn:4"`` in processes that begin
        so. The order of rows stays. A function with an argument ``rng`` gets a random
        generator that depends on ``seed``, the epoch and the row, and on nothing else.

        What comes out has the types that the first rows show; ``fields`` says it
        outright: ``fields={"crop": "float32[*]"}``.

        >>> import numpy as np, recmap as rm
        >>> ds = rm.from_arrays({"x": np.arange(3.0)})
        >>> [row["y"].item() for row in ds.map(lambda row: {"y": row["x"] * 2})]
        [0.0, 2.0, 4.0]
        """
        return self._then("map_rows", fn, workers, batched, fields, seed)

    def decode_image(
        self,
        column: str,
        size: tuple[int, int] | None = (256, 256),
        *,
        channels: int = 3,
        dtype: npt.DTypeLike = "float32",
        scale: Literal["0-1"] | None = None,
        errors: Literal["raise", "skip", "zero"] = "raise",
        fast: bool = False,
    ) -> Pipeline:
        """JPEG, PNG, WebP, GIF or BMP in a column, decoded and resized to (height, width),
        in threads. ``errors="skip"`` leaves rows with a broken image out, ``"zero"`` makes
        it black.

        Resizing is within 1 level of ``tf.image.resize(..., antialias=True)``.
        ``fast=True`` decodes JPEGs at least twice as large as ``size`` at a reduced size,
        which is faster, and differs by several levels where there is fine detail.

        With ``size=None`` images keep their sizes, and the column is ragged: of a row,
        ``row["image"].pad()`` is the array, and ``batch(n, pad="longest")`` fills images
        up to the largest of a batch.
        """
        return self._then("decode_image", column, size, channels, dtype, scale, errors, fast)

    def batch(
        self,
        size: int | Sequence[int],
        *,
        drop_last: bool = False,
        pad: PadLike | None = None,
        lengths: bool = False,
        mask: bool = False,
    ) -> Pipeline:
        """Batches of ``size`` rows; the last may be smaller, or is left out.

        ``pad={"tokens": 128}`` makes ragged columns dense: cut or filled up to a length,
        or to that of the ``"longest"`` row of the batch; ``rm.Pad`` says more. With
        ``lengths`` and ``mask`` there are columns ``tokens_length`` and ``tokens_mask``.

        >>> import numpy as np, recmap as rm
        >>> ds = rm.from_arrays({"t": rm.Ragged.from_rows([[1], [2, 3], [4, 5, 6]])})
        >>> for batch in ds.batch(2, pad={"t": 2}):
        ...     print(batch["t"].tolist())
        [[1, 0], [2, 3]]
        [[4, 5]]
        """
        return self._then("batch", size, drop_last, pad, lengths, mask)

    def bucket(
        self, by: str | Callable[[dict[str, Any]], int], boundaries: Sequence[int]
    ) -> Pipeline:
        """Batches of rows of similar length: ``batch`` comes next, and fills one bucket
        for each stretch of lengths. ``by`` is a column, or a function of a row. A list of
        sizes gives each bucket its own: ``.bucket("t", [32, 64]).batch([64, 32, 16])``.

        >>> import numpy as np, recmap as rm
        >>> ds = rm.from_arrays({"t": rm.Ragged.from_rows([[1], [2, 3, 4], [5], [6, 7, 8]])})
        >>> for batch in ds.bucket("t", [2]).batch(2, pad="longest"):
        ...     print(batch["t"].tolist())
        [[1], [5]]
        [[2, 3, 4], [6, 7, 8]]
        """
        return self._then("bucket", by, boundaries)

    def pack(
        self,
        length: int,
        columns: Sequence[str] | None = None,
        *,
        fill: Any = 0,
        long: Literal["cut", "error", "split"] = "error",
    ) -> Pipeline:
        """Short sequences joined into rows of one length, with columns ``segments`` (1, 2,
        ...; 0 is filler) and ``positions``. ``batch`` comes next.

        >>> import numpy as np, recmap as rm
        >>> ds = rm.from_arrays({"t": rm.Ragged.from_rows([[1, 2], [3], [4, 5]])})
        >>> for batch in ds.pack(4).batch(2):
        ...     print(batch["t"].tolist(), batch["segments"].tolist())
        [[1, 2, 3, 0], [4, 5, 0, 0]] [[1, 1, 2, 0], [1, 1, 0, 0]]
        """
        return self._then("pack", length, columns, fill, long)

    def repeat(self, times: int | None = None) -> Pipeline:
        """All of it so many times, or without end. Before ``batch``, a batch may hold the
        end of one epoch and the beginning of the next.
        """
        return self._then("repeat", times)

    def take(self, count: int) -> Pipeline:
        """The first rows, or after ``batch`` the first batches."""
        return self._then("take", count)

    def skip(self, count: int) -> Pipeline:
        """All but the first rows, or after ``batch`` but the first batches."""
        return self._then("skip", count)

    def shard(
        self, index: int, count: int, *, even: Even = "uneven", mask: str = "mask"
    ) -> Pipeline:
        """The part of one rank of several: every row goes to exactly one of them.

        All ranks take the same order and the same seeds. ``even="uneven"`` deals out what
        there is: ranks differ by a row, and at the very end perhaps by a step. With
        ``"drop"`` the last few rows are left out, with ``"pad"`` rows are given twice and a
        column ``mask`` is false for them; so all ranks take the same number of steps.
        """
        return self._then("shard", index, count, even, mask)

    def prefetch(
        self,
        count: int | None = None,
        *,
        threads: int | None = None,
        memory: int | str | None = None,
    ) -> Pipeline:
        """Batches that are made before they are asked for; 0 is none. ``memory`` bounds
        what they take, and is 512 MB if it is not given. ``threads`` read at a time, 2 if
        nobody says otherwise: disks that are asked for many things at once are faster.
        """
        return self._then("prefetch", count, threads, memory)

    def to_jax(
        self,
        *,
        sharding: Any = None,
        prefetch: int = 2,
        features: Names = None,
        label: Names = None,
    ) -> JaxBatches:
        """Batches of JAX arrays, ``prefetch`` of them on the device before they are asked
        for. ``sharding`` lays each out over devices and processes: one for all columns,
        or a dict by name.
        """
        from recmap.adapters.jax import to_jax

        return to_jax(self.pipeline(), sharding, prefetch, features, label)

    def to_keras(
        self,
        *,
        features: Names = None,
        label: Names = None,
        sample_weight: str | None = None,
        workers: int | str | None = 1,
        max_queue_size: int = 10,
        **unknown: Never,
    ) -> KerasBatches:
        """Return a ``keras.utils.PyDataset``, for any backend.

        A batch is a dict of columns or, with ``label``, a pair of features and label. The
        column ``sample_weight`` makes it a triple: how much each row counts in the loss.

        ``workers=4`` has four threads of Keras make batches that ``fit`` asks for out of
        order, ``"processes:4"`` four processes; ``max_queue_size`` is how many they make
        ahead. With ``fit(..., shuffle=False)`` leave it at 1: batches in order come from the
        running pipeline, with the workers of ``map``.
        """
        from recmap.adapters.keras import to_keras

        return to_keras(
            self.pipeline(), features, label, sample_weight, workers, max_queue_size, unknown
        )

    def to_tf(
        self, *, features: Names = None, label: Names = None, ragged: bool = True
    ) -> tf.data.Dataset:
        """Return a ``tf.data.Dataset``. Each iteration is an epoch.

        A batch is a dict of columns or, with ``label``, a pair of features and label. After
        ``batch(n, drop_last=True)`` its shapes are static: the first axis of its
        ``element_spec`` is n. Else it is None.

        Ragged columns are ``RaggedTensor``; with ``ragged=False`` they are padded with zeros
        to the longest row of the batch.
        """
        from recmap.adapters.tf import to_tf

        return to_tf(self.pipeline(), features, label, ragged)

    def to_torch(
        self,
        *,
        features: Names = None,
        label: Names = None,
        ragged: Literal["nested", "list", "parts"] = "nested",
    ) -> TorchRows | TorchStream:
        """A PyTorch dataset: rows by number for a ``DataLoader`` and its samplers, or
        after ``batch`` a stream of batches for ``DataLoader(..., batch_size=None)``.

        Without ``label`` there are dicts; with it, pairs of features and label. Ragged
        columns of a batch are nested tensors, lists of tensors, or values and offsets.
        """
        from recmap.adapters.torch import to_torch

        return to_torch(self.pipeline(), features, label, ragged)
