"""The verbs that end a pipeline: batches for TensorFlow, Keras, PyTorch and JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    # A framework is imported when a pipeline is handed to it.
    from recmap.adapters.features_and_labels import Names
    from recmap.adapters.feed import Feed
    from recmap.adapters.jax import JaxBatches
    from recmap.adapters.keras import KerasBatches
    from recmap.adapters.tf_library import tf
    from recmap.adapters.torch import TorchRows, TorchStream

__all__ = ["Frameworks"]


class Frameworks:
    """What hands rows and batches to a framework."""

    def _feed(self) -> Feed:
        """Return the feed that adapters read."""
        raise NotImplementedError

    def to_jax(
        self,
        *,
        sharding: Any = None,
        prefetch: int = 2,
        features: Names = None,
        label: Names = None,
    ) -> JaxBatches:
        """Return batches of JAX arrays, ``prefetch`` of them on the device before they are
        asked for. ``sharding`` lays each out over devices and processes: one for all
        columns, or a dict by name.
        """
        from recmap.adapters.jax import to_jax

        return to_jax(self._feed(), sharding, prefetch, features, label)

    def to_keras(
        self,
        *,
        features: Names = None,
        label: Names = None,
        workers: int = 1,
        use_multiprocessing: bool = False,
        max_queue_size: int = 10,
    ) -> KerasBatches:
        """Return a ``keras.utils.PyDataset`` of dicts or, with ``label``, of pairs of
        features and label. The other arguments are those of ``PyDataset``: who makes batches
        that are asked for out of turn.
        """
        from recmap.adapters.keras import to_keras

        return to_keras(self._feed(), features, label, workers, use_multiprocessing, max_queue_size)

    def to_tf(
        self, *, features: Names = None, label: Names = None, ragged: bool = True
    ) -> tf.data.Dataset:
        """Return a ``tf.data.Dataset`` of dicts or, with ``label``, of pairs of features and
        label. Each iteration is an epoch.

        Ragged columns are ``RaggedTensor``; with ``ragged=False`` they are filled up with
        zeros to the longest row of the batch.
        """
        from recmap.adapters.tf import to_tf

        return to_tf(self._feed(), features, label, ragged)

    def to_torch(
        self,
        *,
        features: Names = None,
        label: Names = None,
        ragged: Literal["nested", "list", "parts"] = "nested",
    ) -> TorchRows | TorchStream:
        """Return a PyTorch dataset: rows by number for a ``DataLoader`` and its samplers or,
        after ``batch``, a stream of batches for ``DataLoader(..., batch_size=None)``.

        Without ``label`` there are dicts; with it, pairs of features and label. Ragged
        columns of a batch are nested tensors, lists of tensors, or values and offsets.
        """
        from recmap.adapters.torch import to_torch

        return to_torch(self._feed(), features, label, ragged)
