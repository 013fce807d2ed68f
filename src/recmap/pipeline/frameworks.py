"""The verbs that end a pipeline: batches for TensorFlow, Keras, PyTorch and JAX, and tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, overload

from recmap.model.habits import helpful

if TYPE_CHECKING:
    # A framework is imported when a pipeline is handed to it.
    import pandas as pd  # type: ignore[import-untyped]
    import polars as pl
    import pyarrow as pa

    from recmap.adapters.columns import Names
    from recmap.adapters.feed import Feed
    from recmap.adapters.jax import JaxBatches
    from recmap.adapters.keras import KerasBatches
    from recmap.adapters.tf import tf
    from recmap.adapters.torch import Device, TorchBatches, TorchRows, TorchStream
    from recmap.model.arrow import ArrowBatches
    from recmap.model.facts import SourceFacts
    from recmap.model.schema import Batch, Schema


@helpful
class Frameworks:
    """The methods that hand rows and batches to a framework."""

    def _feed(self) -> Feed:
        """Return the feed that adapters read."""
        raise NotImplementedError

    def _host_feed(self, verb: str) -> Feed:
        """Return the feed for an adapter that places no batches on a device by PyTorch."""
        from recmap.adapters.feed import check_on_host

        feed = self._feed()
        check_on_host(feed, verb)
        return feed

    def _table(self) -> tuple[Schema, Iterable[Batch]]:
        """Return all rows in batches of some megabytes, from the beginning on each iteration."""
        raise NotImplementedError

    def _table_facts(self) -> SourceFacts:
        """Return what is known of the table that the rows come from, if they come from one."""
        raise NotImplementedError

    def _arrow_batches(self, tensors: Literal["extension", "list"]) -> ArrowBatches:
        from recmap.model.arrow import ArrowBatches

        return ArrowBatches(*self._table(), tensors)

    def __arrow_c_schema__(self) -> object:
        """Return the schema for a library that reads Arrow."""
        return self._arrow_batches("extension").__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return batches for a library that reads Arrow: Polars, DuckDB, PyArrow, pandas.

        They are read as the library asks for them. Rows with several axes have the type
        ``arrow.fixed_shape_tensor``.
        """
        return self._arrow_batches("extension").__arrow_c_stream__(requested_schema)

    def to_arrow(self, *, tensors: Literal["extension", "list"] = "extension") -> pa.Table:
        """Read all rows into a ``pyarrow.Table``.

        Rows with several axes have the type ``arrow.fixed_shape_tensor``. With
        ``tensors="list"`` they are lists of lists, which Hugging Face needs. To read batch by
        batch instead, use ``pyarrow.RecordBatchReader.from_stream(ds)``.

        >>> import numpy as np, recmap as rm
        >>> rm.from_arrays({"x": np.arange(3)}).to_arrow().to_pydict()
        {'x': [0, 1, 2]}
        """
        from recmap.adapters.arrow import to_arrow
        from recmap.model.arrow import ArrowBatches

        schema, batches = self._table()
        return to_arrow(schema, ArrowBatches(schema, batches, tensors), self._table_facts())

    def to_pandas(self) -> pd.DataFrame:
        """Read all rows into a ``pandas.DataFrame``.

        Columns with one number per row keep their dtype, and text is ``str``. In others, each
        row is an object: a list if rows differ in length, an array, or ``bytes``. Columns with
        nulls are of ``Int64`` and the like. What was opened as a DataFrame comes back as it was:
        its dtypes and categories, and its index if these are all of its rows in their order.

        >>> import numpy as np, recmap as rm
        >>> frame = rm.from_arrays({"x": np.arange(3), "y": np.ones((3, 2))}).to_pandas()
        >>> frame["x"].sum().item(), frame["y"][0]
        (3, array([1., 1.]))
        """
        from recmap.adapters.arrow import to_pandas

        return to_pandas(*self._table(), self._table_facts())

    def to_polars(self) -> pl.DataFrame:
        """Read all rows into a ``polars.DataFrame``. Rows with axes are its arrays and lists.

        >>> import numpy as np, recmap as rm
        >>> frame = rm.from_arrays({"x": np.arange(6.0).reshape(3, 2)}).to_polars()
        >>> frame["x"].to_list()
        [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
        """
        from recmap.adapters.arrow import to_polars
        from recmap.model.arrow import ArrowBatches

        schema, batches = self._table()
        return to_polars(schema, ArrowBatches(schema, batches, "list"), self._table_facts())

    def to_jax(
        self,
        *,
        device: Any = None,
        sharding: Any = None,
        prefetch: int = 2,
        features: Names = None,
        label: Names = None,
    ) -> JaxBatches:
        """Return batches of JAX arrays; ``prefetch`` of them are on the device ahead of the loop.

        ``device`` is a JAX device or its name, such as ``"gpu"`` or ``"gpu:1"``. Instead,
        ``sharding`` lays out arrays over several devices and processes: one for all columns,
        or a dict by name. Without either, batches go to JAX's default device.
        """
        from recmap.adapters.jax import to_jax

        return to_jax(self._host_feed("to_jax()"), device, sharding, prefetch, features, label)

    def to_keras(
        self,
        *,
        features: Names = None,
        label: Names = None,
        sample_weight: str | None = None,
        workers: int | str | None = 1,
        max_queue_size: int = 10,
    ) -> KerasBatches:
        """Return a ``keras.utils.PyDataset``, for any backend.

        A batch is a dict of columns or, with ``label``, a pair of features and label. The
        column ``sample_weight``, how much each row counts in the loss, makes it a triple.

        With ``workers=4``, four Keras threads make the batches that ``fit`` asks for out of
        order; with ``"processes:4"``, four processes do. ``max_queue_size`` is how many they
        make ahead. With ``fit(..., shuffle=False)`` leave ``workers`` at 1: batches in order
        come from the running pipeline, with the workers of ``map``.
        """
        from recmap.adapters.keras import to_keras

        return to_keras(
            self._host_feed("to_keras()"),
            features,
            label,
            sample_weight,
            workers,
            max_queue_size,
        )

    def to_tf(
        self, *, features: Names = None, label: Names = None, ragged: bool = True
    ) -> tf.data.Dataset:
        """Return a ``tf.data.Dataset``. Each iteration is an epoch.

        A batch is a dict of columns or, with ``label``, a pair of features and label. After
        ``batch(n, drop_last=True)`` its shapes are static: the first axis of its
        ``element_spec`` is n. Otherwise it is None.

        Ragged columns are ``RaggedTensor``; with ``ragged=False`` they are padded with zeros
        to the longest row of the batch.
        """
        from recmap.adapters.tf import to_tf

        return to_tf(self._host_feed("to_tf()"), features, label, ragged)

    @overload
    def to_torch(
        self,
        *,
        features: Names = ...,
        label: Names = ...,
        ragged: Literal["nested", "list", "parts"] = ...,
        device: None = ...,
        prefetch: int = ...,
        pin_memory: bool = ...,
    ) -> TorchRows | TorchStream: ...

    @overload
    def to_torch(
        self,
        *,
        features: Names = ...,
        label: Names = ...,
        ragged: Literal["nested", "list", "parts"] = ...,
        device: Device,
        prefetch: int = ...,
        pin_memory: bool = ...,
    ) -> TorchBatches: ...

    def to_torch(
        self,
        *,
        features: Names = None,
        label: Names = None,
        ragged: Literal["nested", "list", "parts"] = "nested",
        device: Device | None = None,
        prefetch: int = 2,
        pin_memory: bool = False,
    ) -> TorchRows | TorchStream | TorchBatches:
        """Return a PyTorch dataset.

        After ``batch`` it is a stream of batches for ``DataLoader(..., batch_size=None)``.
        Otherwise it gives rows by number, for a ``DataLoader`` and its samplers. A batch is a
        dict of columns or, with ``label``, a pair of features and label. Ragged columns are
        nested tensors, lists of tensors, or values and offsets (``"parts"``).

        With ``device``, such as ``"cuda"``, iterate over the result itself: it gives batches on
        that device, ``prefetch`` of them ahead of the loop. ``pin_memory`` gives batches in
        memory from which you can copy to a GPU without waiting; without a GPU it does nothing.
        """
        from recmap.adapters.torch import to_torch

        return to_torch(self._feed(), features, label, ragged, device, prefetch, pin_memory)
