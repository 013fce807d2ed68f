"""What people ask of Lightning's Trainer: every checkpoint resumes with the rows that are left.

A run saves after each step, epoch and validation. Resumed from any of these, it trains on the rows
of the uninterrupted run.
"""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.frameworks import Lazy, torch

lightning: Any = Lazy("lightning")

pytestmark = [
    pytest.mark.slow,
    # Lightning warns of small data, and of code of its own.
    pytest.mark.filterwarnings("default"),
    pytest.mark.filterwarnings("error::recmap.NotResumableWarning"),
]

BATCH = 4


def rows(count: int, seed: int = 1) -> Any:
    numbers = np.arange(count)
    ds = rm.from_arrays({"id": numbers, "x": numbers.astype(np.float32)[:, None]})
    return ds.shuffle(seed=seed)


def some(row: dict[str, Any]) -> bool:
    return bool(row["id"] % 5)


def plain(**to: Any) -> Any:
    return rows(34).batch(BATCH).shard(even="drop").to_torch(**to)


def uncounted(**to: Any) -> Any:
    return rows(40).filter(some).batch(BATCH).to_torch(**to)


def repeated(**to: Any) -> Any:
    return rows(18).batch(BATCH).repeat(2).to_torch(**to)


def several(**to: Any) -> Any:
    return {"a": plain(**to), "b": rows(14, seed=2).batch(BATCH).to_torch(**to)}


@functools.cache
def module() -> type[Any]:
    """Return the class of the model, which needs Lightning."""

    class Module(lightning.LightningModule):  # type: ignore[misc]  # untyped
        def __init__(self, folder: Path | None) -> None:
            super().__init__()
            self.layer, self.folder = torch.nn.Linear(1, 1), folder
            self.steps: list[Any] = []
            self.saved: dict[Path, int] = {}

        def training_step(self, batch: Any, index: int) -> Any:
            parts = [batch] if "x" in batch else list(batch.values())
            self.steps.append((self.current_epoch, [part["id"].tolist() for part in parts]))
            return self.layer(parts[0]["x"]).mean()

        def validation_step(self, batch: Any, index: int) -> None:
            pass

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

        def _save(self, when: str) -> None:
            if self.folder is not None and not self.trainer.sanity_checking:
                path = self.folder / f"{when}-{len(self.steps)}"
                self.trainer.save_checkpoint(path)
                self.saved[path] = len(self.steps)

        def on_train_batch_end(self, *_: Any) -> None:
            self._save("step")

        def on_train_epoch_end(self) -> None:
            self._save("epoch")

        def on_validation_end(self) -> None:
            self._save("validation")

    return Module


def fit(
    make: Callable[[], Any], folder: Path | None = None, resumed: Path | None = None, **how: Any
) -> Any:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, enable_model_summary=False, **quiet, **how
    )
    model = module()(folder)
    model.train_dataloader = make
    model.val_dataloader = lambda: rows(6).batch(BATCH).to_torch()
    trainer.fit(model, ckpt_path=resumed, weights_only=False)
    return model


HABITS: list[dict[str, Any]] = [
    {"max_epochs": 2, "accumulate_grad_batches": 3, "num_sanity_val_steps": 0},
    {"max_epochs": 2, "limit_train_batches": 5, "num_sanity_val_steps": -1},
    {"max_epochs": 2, "val_check_interval": 3},
    {"max_epochs": 2, "reload_dataloaders_every_n_epochs": 1},
    {"max_steps": 12, "check_val_every_n_epoch": 2},
    {"max_steps": 8, "limit_train_batches": 5, "accumulate_grad_batches": 2},
]
ONCE = {"max_steps": 12}
CASES = [(plain, habit, False) for habit in HABITS]
CASES += [(plain, HABITS[2], True), (uncounted, HABITS[3], False), (uncounted, ONCE, True)]
CASES += [(uncounted, HABITS[0], False), (several, HABITS[2], False), (several, ONCE, True)]
CASES += [(repeated, HABITS[0], False), (repeated, HABITS[4], False)]


@pytest.mark.parametrize(("kind", "how", "device"), CASES)
def test_every_checkpoint_resumes_with_the_rows_that_are_left(
    kind: Any, how: dict[str, Any], device: bool, tmp_path: Path
) -> None:
    make = functools.partial(kind, **({"device": "cpu"} if device else {}))
    whole = fit(make, tmp_path, **how)
    assert len({epoch for epoch, _ in whole.steps}) >= 2
    # Each kind of checkpoint, in the middle and at the end.
    chosen = list(whole.saved)[::3] + [path for path in whole.saved if "step" not in path.name]
    for path in chosen:
        rest = fit(make, resumed=path, **how)
        assert rest.steps == whole.steps[whole.saved[path] :], path.name


@pytest.mark.parametrize(
    ("kind", "how"), [(uncounted, HABITS[4]), (several, {"max_steps": 12, "val_check_interval": 4})]
)
def test_a_batch_that_lightning_would_take_twice_is_refused(
    kind: Any, how: dict[str, Any], tmp_path: Path
) -> None:
    whole = fit(kind, tmp_path, **how)
    refused = 0
    for path, done in whole.saved.items():
        try:
            assert fit(kind, resumed=path, **how).steps == whole.steps[done:], path.name
        except rm.OptionError as e:
            assert "trains on a batch twice" in str(e)  # noqa: PT017
            assert "epoch" in path.name
            refused += 1
    assert refused == 1


def test_overfit_batches_takes_the_same_batches_in_every_epoch(tmp_path: Path) -> None:
    how: dict[str, Any] = {"max_epochs": 3, "overfit_batches": 2}
    whole = fit(plain, tmp_path, **how)
    batches = [batch for _, batch in whole.steps]
    assert batches == batches[:2] * 3
    for path, done in whole.saved.items():
        assert fit(plain, resumed=path, **how).steps == whole.steps[done:], path.name


def test_two_runs_in_one_process_begin_with_the_first_epoch() -> None:
    stream = plain()
    first, second = (fit(lambda: stream, max_epochs=2).steps for _ in range(2))
    assert first == second


def test_validating_in_an_epoch_on_what_is_trained_on_raises() -> None:
    shared = rows(34).batch(BATCH)
    trainer = lightning.Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, val_check_interval=3,
        enable_progress_bar=False, max_epochs=1, enable_model_summary=False,
    )  # fmt: skip
    with pytest.raises(rm.OptionError, match="a separate pipeline for validation"):
        trainer.fit(module()(None), shared.to_torch(), shared.to_torch())


def test_several_streams_that_are_not_counted_raise_in_the_middle_of_an_epoch(
    tmp_path: Path,
) -> None:
    def make() -> Any:
        return {"a": uncounted(), "b": rows(14, seed=2).filter(some).batch(BATCH).to_torch()}

    whole = fit(make, tmp_path, max_epochs=2)
    with pytest.raises(rm.OptionError, match="several streams"):
        fit(make, resumed=tmp_path / "step-3", max_epochs=2)
    (end,) = itertools.islice((path for path in whole.saved if "epoch" in path.name), 1)
    resumed = fit(make, resumed=end, max_epochs=2)
    assert resumed.steps == whole.steps[whole.saved[end] :]


def test_a_state_that_was_loaded_by_hand_is_said_to_be_left_out() -> None:
    stream = plain()
    list(stream)
    list(itertools.islice(stream, 3))
    again = plain()
    again.load_state_dict(stream.state_dict())
    with pytest.warns(rm.NotResumableWarning, match="give Lightning its checkpoint"):
        fit(lambda: again, max_epochs=1)
