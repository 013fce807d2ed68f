"""One of several processes that make global arrays together: ``NAME RANK WORLD PORT FOLDER``.

It logs the rows of its own devices in each step. The run that begins saves the state with Orbax in
the middle of an epoch, and is killed in the step after that. See test_jax_ranks.py.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

import recmap as rm

ROWS, BATCH, EPOCHS, SAVED_AFTER = 48, 4, 3, 9


def batches() -> Any:
    mesh = jax.make_mesh((len(jax.devices()),), ("data",))
    ds = rm.from_arrays({"id": np.arange(ROWS, dtype=np.int32)}).shuffle(seed=1).batch(BATCH)
    rows = NamedSharding(mesh, PartitionSpec("data"))
    return ds.shard(even="drop").to_jax(sharding=rows)


def step(epoch: int, batch: Any) -> dict[str, Any]:
    shards = batch["id"].addressable_shards
    own = [int(number) for shard in shards for number in np.asarray(shard.data)]
    return {"epoch": epoch, "global": list(batch["id"].shape), "own": own}


def main(name: str, rank: int, world: int, port: str, folder: Path) -> None:
    jax.config.update("jax_platforms", "cpu")
    if world > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"localhost:{port}", world, rank)
    train, steps = batches(), 0
    manager = ocp.CheckpointManager(folder / "saved")
    begins = manager.latest_step() is None
    if not begins:
        saved = manager.restore(None, args=ocp.args.Composite(data=ocp.args.JsonRestore()))
        train.restore(saved["data"])
    with (folder / f"{name}-{rank}.log").open("w") as log:
        for epoch in range(train.epoch, EPOCHS):
            for batch in train:
                if begins and steps == SAVED_AFTER:
                    multihost_utils.sync_global_devices("saved")
                    os.kill(os.getpid(), signal.SIGKILL)
                log.write(json.dumps(step(epoch, batch)) + "\n")
                log.flush()
                steps += 1
                if begins and steps == SAVED_AFTER:
                    state = ocp.args.JsonSave(train.state())
                    manager.save(steps, args=ocp.args.Composite(data=state))
                    manager.wait_until_finished()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], Path(sys.argv[5]))
