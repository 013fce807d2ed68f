"""One of two processes that make global arrays together: ``RANK PORT FOLDER``.

It writes the rows of its own devices in each step: of an epoch, and of its rest after a state of
rank 0. See test_jax_ranks.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

import recmap as rm

WORLD, ROWS, SAVED_AFTER = 2, 48, 3


def batches() -> Any:
    mesh = jax.make_mesh((len(jax.devices()),), ("data",))
    ds = rm.from_arrays({"id": np.arange(ROWS, dtype=np.int32)}).shuffle(seed=1).batch(4)
    rows = NamedSharding(mesh, PartitionSpec("data"))
    return ds.shard(even="drop").to_jax(sharding=rows)


def step(batch: Any) -> dict[str, Any]:
    shards = batch["id"].addressable_shards
    own = [int(number) for shard in shards for number in np.asarray(shard.data)]
    return {"global": list(batch["id"].shape), "own": own}


def main(rank: int, port: str, folder: Path) -> None:
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", WORLD, rank)
    train, whole = batches(), []
    for batch in train:
        whole.append(step(batch))
        if len(whole) == SAVED_AFTER and rank == 0:
            (folder / "state.json").write_text(json.dumps(train.state()))
    multihost_utils.sync_global_devices("saved")
    state = json.loads((folder / "state.json").read_text())
    rest = [step(batch) for batch in batches().restore(state)]
    (folder / f"{rank}.json").write_text(json.dumps({"whole": whole, "rest": rest}))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
