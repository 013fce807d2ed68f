"""The Ray Train example in docs/ray-data.md: two workers, each with half of the rows."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import numpy as np
import pytest

import recmap as rm

# Ray leaves pipes to the garbage collector, and warns about future settings.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

DOCS = Path(__file__).parents[2] / "docs" / "ray-data.md"


@pytest.mark.usefixtures("cluster")
def test_two_ray_train_workers_share_the_rows() -> None:
    x = np.arange(400, dtype="float32").reshape(100, 4) / 400
    rm.from_arrays({"x": x, "y": x.sum(axis=1)}).save("train.tfrecord")
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    example = next(block for block in blocks if "TorchTrainer" in block)
    # Make each worker write down the rows it saw.
    watched = example.replace(
        "            optimizer.step()\n",
        "            optimizer.step()\n"
        "            with open(f\"{config['path']}.{context.get_world_rank()}\", 'ab') as file:\n"
        "                file.write(batch['x'].tobytes())\n",
    )
    # Ray Train leaves its own handlers behind, which would abort the test run.
    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        exec(watched, {"__name__": "example"})
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
    seen = [np.fromfile(f"train.tfrecord.{rank}", "float32").reshape(2, -1, 4) for rank in (0, 1)]
    assert [share.shape for share in seen] == [(2, 50, 4), (2, 50, 4)]
    for epoch in range(2):
        rows = np.concatenate([share[epoch] for share in seen])
        assert np.array_equal(np.sort(rows[:, 0]), x[:, 0])
