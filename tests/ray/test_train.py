"""The Ray Train example in docs/ray-data.md: workers are killed, and the run resumes."""

from __future__ import annotations

import json
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
ROWS, BATCH, EPOCHS = 100, 5, 2

# Each worker writes down where it begins and the rows of each step, and is killed in some of them.
LOG = """
import json, signal, time

def log(config, epoch, what):
    path = f"{config['path']}.{ray.train.get_context().get_world_rank()}"
    with open(path, "a+") as file:
        file.write(json.dumps([epoch, what]) + "\\n")
        file.seek(0)
        lines = [json.loads(line)[1] for line in file]
    begun = [at for at, what in enumerate(lines) if isinstance(what, int)]
    if config["killed_at"].get(len(begun)) == len(lines) - begun[-1]:
        while checkpoints(config) < 4:  # Ray notes them a little later
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)

def checkpoints(config):
    folder = os.path.join(os.path.dirname(config["path"]), "runs", "first")
    try:
        with open(os.path.join(folder, "checkpoint_manager_snapshot.json")) as file:
            return len(json.load(file)["checkpoint_results"])
    except (FileNotFoundError, ValueError):  # while it is written
        return 0

"""
BEGUN = "    log(config, batches.epoch, batches.state()['given'])\n"
STEP = "            log(config, epoch, batch['x'][:, 0].tolist())\n"


def example(workers: int, killed_at: dict[int, int]) -> str:
    """Return the program of the page, with a log and kills: in which step of which attempt."""
    found: list[str] = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    program = next(block for block in found if "TorchTrainer" in block)
    for old, new in (
        ("def train(config):", LOG + "def train(config):"),
        ("    model = ray.train.torch", BEGUN + "    model = ray.train.torch"),
        ("            loss = torch", STEP + "            loss = torch"),
        ("batch(64)", f"batch({BATCH})"),
        # One worker alone has its batches on a device: each takes the states of the other.
        (".to_torch()", ".to_torch()" if workers > 1 else ".to_torch(device='cpu')"),
        ("step % 100", "step % 4"),
        ("max_failures=3", "max_failures=1"),
        ("num_workers=2", f"num_workers={workers}"),
        ('config={"path"', f'config={{"killed_at": {killed_at}, "path"'),
    ):
        assert program.count(old) == 1, old
        program = program.replace(old, new)
    return program


def run(program: str) -> None:
    # Ray Train leaves its own handlers behind, which would abort the test run.
    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        exec(program, {"__name__": "example"})
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)


def attempts(rank: int) -> list[list[tuple[tuple[int, int], list[float]]]]:
    """Return the steps of each attempt, each with its epoch and number, after where it begins."""
    found: list[list[tuple[tuple[int, int], list[float]]]] = []
    at = 0, 0
    for line in Path(f"train.tfrecord.{rank}").read_text().splitlines():
        epoch, what = json.loads(line)
        if isinstance(what, int):
            at = epoch, what
            found.append([(at, [])])
        else:
            at = (epoch, at[1] if at[0] == epoch else 0)
            found[-1].append((at, what))
            at = (epoch, at[1] + 1)
    return found


@pytest.mark.usefixtures("cluster")
def test_killed_workers_resume_with_as_many_and_with_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.train import TrainingFailedError

    # Ray notices a kill at once, and starts no process that waits for a cloud to take nodes away.
    monkeypatch.setenv("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")
    monkeypatch.setenv("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")
    x = np.arange(ROWS * 4, dtype="float32").reshape(ROWS, 4) / 400
    rm.from_arrays({"x": x, "y": x.sum(axis=1)}).save("train.tfrecord")
    # In epoch 1, which is saved after 4 steps; again before it is saved; and then with one worker.
    with pytest.raises(TrainingFailedError):
        run(example(workers=2, killed_at={1: 16, 2: 4}))
    run(example(workers=1, killed_at={}))
    first, second, third = attempts(0)
    others = attempts(1)
    assert second[0] == ((1, 4), [])  # where the checkpoint was
    assert third[0] == ((1, 4), [])
    seen = [step for log in (first, others[0]) for step in log if step[0] < (1, 4)] + third
    for epoch in range(EPOCHS):
        rows = [number for at, numbers in seen if at[0] == epoch for number in numbers]
        assert sorted(rows) == x[:, 0].tolist()
    # As many workers repeat the step that was not saved, in the same order.
    for before, after in ((first, second), (others[0], others[1])):
        assert before[-1] == after[1]
