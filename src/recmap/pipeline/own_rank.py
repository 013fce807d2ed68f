"""Which rank this process is, as told by the framework or by what launched it.

No framework is imported: one that is not loaded has not been told either.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from recmap.errors import OptionError

_Found = tuple[int, int] | None

# The variables that launchers set: of torchrun, Accelerate and DeepSpeed, and of MPI.
_TORCHRUN = ("RANK", "WORLD_SIZE")
_MPI = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
)


def own_rank() -> tuple[int, int]:
    """Return the rank of this process and the world; 0 and 1 if nothing tells of others."""
    finders: list[Callable[[], _Found]] = [_from_torch, _from_jax, _from_torchrun, _from_slurm]
    finders += [lambda names=names: _from_environment(*names) for names in _MPI]  # type: ignore[misc]
    found = (find() for find in finders)
    return next((each for each in found if each is not None), (0, 1))


def reads_for_itself() -> tuple[int, int] | None:
    """Return the rank and the world if this surely is one of several ranks that read.

    Rank 0 may read for all, and the tasks of a cluster or of MPI may have nothing to do with
    each other.
    """
    if divided_by_others():
        return None
    found = _from_torch() or _from_jax() or _from_torchrun()
    return found if found is not None and found[0] > 0 else None


def divided_by_others() -> bool:
    """Return whether Accelerate is loaded: it divides, or hands out, what it prepares."""
    return "accelerate" in sys.modules


def _from_torch() -> _Found:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _from_jax() -> _Found:
    jax = sys.modules.get("jax")
    # Asking JAX for processes starts its devices, so ask only if it knows of several.
    initialized = getattr(getattr(jax, "distributed", None), "is_initialized", None)
    if jax is None or initialized is None or not initialized():
        return None
    return jax.process_index(), jax.process_count()


def _from_torchrun() -> _Found:
    return _from_environment(*_TORCHRUN)


def _from_slurm() -> _Found:
    # A batch script also has the number of tasks, but is not one of them.
    steps = ("SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NUM_TASKS")
    if "SLURM_JOB_ID" in os.environ and not any(name in os.environ for name in steps):
        return None
    of_step = "SLURM_STEP_NUM_TASKS" in os.environ
    return _from_environment("SLURM_PROCID", "SLURM_STEP_NUM_TASKS" if of_step else "SLURM_NTASKS")


def _from_environment(rank: str, world: str) -> _Found:
    if rank not in os.environ or world not in os.environ:
        return None
    found = os.environ[rank], os.environ[world]
    if not all(value.isdecimal() and value.isascii() for value in found):
        raise OptionError(
            f"shard(): the environment has {rank}={found[0]!r} and {world}={found[1]!r}; give the "
            "numbers: shard(rank, world)"
        )
    return int(found[0]), int(found[1])
