"""Rows by number in Accelerate and in the Trainer of transformers, and what they do to streams."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.frameworks import Lazy, torch
from tests.numbered import ids

accelerate: Any = Lazy("accelerate")
transformers: Any = Lazy("transformers")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # of their own code


def rows(count: int = 26) -> rm.Dataset:
    numbers = np.arange(count)
    return rm.from_arrays({"id": numbers, "x": numbers.astype(np.float32)[:, None]})


def jitter(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**row, "x": row["x"] + np.float32(rng.normal())}


def some(row: dict[str, Any]) -> bool:
    return bool(row["id"] % 5)


def seen(batch: Any) -> tuple[list[int], list[float]]:
    return batch["id"].tolist(), batch["x"].reshape(-1).tolist()


def train(dataset: Any, folder: Path, resumed: Path | None = None, **how: Any) -> list[Any]:
    """Train; return the rows of each step."""
    steps: list[Any] = []

    class Model(torch.nn.Module):  # type: ignore[misc]  # untyped
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, id: Any, x: Any) -> dict[str, Any]:
            if self.training:
                steps.append(seen({"id": id, "x": x}))
            return {"loss": self.layer(x).mean()}

    arguments = transformers.TrainingArguments(
        output_dir=str(folder), use_cpu=True, per_device_train_batch_size=4, save_steps=1,
        report_to="none", disable_tqdm=True, remove_unused_columns=False, **how,
    )  # fmt: skip
    evaluated = rows(6).to_torch() if "eval_strategy" in how else None
    trainer = transformers.Trainer(
        Model(), arguments, train_dataset=dataset, eval_dataset=evaluated
    )
    trainer.train(resume_from_checkpoint=None if resumed is None else str(resumed))
    return steps


@pytest.mark.parametrize(
    "how",
    [
        {"num_train_epochs": 2, "gradient_accumulation_steps": 3},
        {"max_steps": 12, "dataloader_drop_last": True, "eval_strategy": "epoch"},
        {"max_steps": 9, "dataloader_num_workers": 2, "dataloader_persistent_workers": True},
    ],
)
def test_the_trainer_resumes_in_the_order_and_with_the_random_numbers_of_its_epoch(
    how: dict[str, Any], tmp_path: Path
) -> None:
    def dataset() -> Any:
        return rows().shuffle(seed=1).map(jitter).to_torch()

    whole = train(dataset(), tmp_path / "whole", **how)
    ends = sorted((tmp_path / "whole").iterdir(), key=lambda path: int(path.name.split("-")[1]))
    for path in (ends[1], ends[-2]):  # in both epochs
        rest = train(dataset(), tmp_path / path.name, path, **how)
        assert rest
        assert rest == whole[-len(rest) :]
    numbers = [x[row.index(0)] for row, x in whole if 0 in row]
    assert len(numbers) == len(set(numbers))  # other random numbers in every epoch


def test_a_stream_without_a_length_may_repeat_rows_in_the_trainer(tmp_path: Path) -> None:
    def dataset() -> Any:
        return rows().shuffle(seed=1).filter(some).to_torch()

    whole = train(dataset(), tmp_path / "whole", max_steps=8)
    with pytest.warns(rm.NotResumableWarning, match="does not know how many rows"):
        rest = train(dataset(), tmp_path / "rest", tmp_path / "whole" / "checkpoint-2", max_steps=8)
    assert rest == whole[2:]
    counted = rows().filter(some).shuffle(seed=1)
    whole = train(counted.to_torch(), tmp_path / "counted", max_steps=8)
    resumed = tmp_path / "counted" / "checkpoint-7"
    assert train(counted.to_torch(), tmp_path / "again", resumed, max_steps=8) == whole[7:]


def test_accelerate_skips_rows_and_keeps_the_epoch() -> None:
    settings = accelerate.DataLoaderConfiguration(use_seedable_sampler=True)
    accelerator = accelerate.Accelerator(cpu=True, dataloader_config=settings)

    def prepared() -> Any:
        torch.manual_seed(7)
        dataset = rows().shuffle(seed=1).map(jitter).to_torch()
        loader = torch.utils.data.DataLoader(dataset, batch_size=4, shuffle=True)
        return accelerator.prepare(loader)

    loader = prepared()
    epochs = [[seen(batch) for batch in loader] for _ in range(2)]
    again = prepared()
    again.set_epoch(1)
    rest = [seen(batch) for batch in accelerate.skip_first_batches(again, 3)]
    assert rest == epochs[1][3:]


def test_batches_of_a_stream_are_not_skipped_twice() -> None:
    def stream() -> Any:
        return rows().shuffle(seed=1).batch(4).to_torch()

    def skipped(train: Any) -> Any:
        loader = torch.utils.data.DataLoader(train, batch_size=None)
        return accelerate.skip_first_batches(loader, 3)

    whole = ids(stream())
    with pytest.warns(rm.NotResumableWarning, match="register_for_checkpointing"):
        assert ids(skipped(stream())) == whole[3:]
    begun = stream()
    list(islice(begun, 3))
    again = stream()
    again.load_state_dict(begun.state_dict())
    with pytest.raises(rm.OptionError, match="leave it out"):
        list(skipped(again))
    assert ids(again) == whole[3:]


def test_the_loader_of_ray_train_is_not_ahead_of_the_state() -> None:
    from ray.train.torch.train_loop_utils import _WrappedDataLoader

    batches = rows().shuffle(seed=1).batch(4)
    for stream in (batches.to_torch(), batches.to_torch(device="cpu")):
        stream.epoch = 0
        loader = _WrappedDataLoader(
            torch.utils.data.DataLoader(stream, batch_size=None), torch.device("cpu"), True
        )
        whole: list[list[int]] = []
        states = []
        for _ in range(2):
            for batch in loader:
                whole.append(batch["id"].tolist())
                states.append((len(whole), stream.state_dict()))
        for done, state in states:
            again = rows().shuffle(seed=1).batch(4).to_torch()
            again.load_state_dict(state)
            assert [step for _ in range(again.epoch, 2) for step in ids(again)] == whole[done:]
