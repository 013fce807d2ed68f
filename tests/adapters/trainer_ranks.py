"""Trains with every trainer on two ranks, kills them in the middle of an epoch, and resumes.

``python -m tests.adapters.trainer_ranks FOLDER`` imports the trainers once, and forks all ranks.
They log the rows of each step. A rank that fails writes its traceback instead. See
test_trainers.py.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import accelerate
import keras
import lightning
import numpy as np
import torch
import torch._dynamo  # before ranks are forked: each would import it
import torch.distributed as dist
import transformers
from lightning.pytorch.plugins.environments import TorchElasticEnvironment
from torch.distributed import checkpoint as dcp
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import recmap as rm

assert keras.backend.backend() == "torch"

ROWS, BATCH, EPOCHS = 48, 4, 3


def rows() -> rm.Dataset:
    numbers = np.arange(ROWS)
    return rm.from_arrays({"id": numbers, "x": numbers.astype(np.float32)[:, None]})


def chain() -> rm.Stream:
    return rows().shuffle(seed=1).batch(BATCH).shard(even="drop")


class Run:
    """One rank of a run. It is killed in the step after the one in which it saves."""

    def __init__(self, folder: Path, name: str, save_at: int | None) -> None:
        self.saved = folder / "saved"
        self.save_at = save_at
        self.steps = 0
        self._log = (folder / f"{name}-{os.environ['RANK']}.log").open("a")
        self.was_saved = self.saved.exists()  # asked before any rank saves

    def step(self, epoch: int, batch: dict[str, Any]) -> bool:
        """Log a step; return whether to save after it."""
        if self.save_at is not None and self.steps == self.save_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.steps += 1
        self._log.write(json.dumps([epoch, np.asarray(batch["id"]).reshape(-1).tolist()]) + "\n")
        self._log.flush()
        return self.steps == self.save_at


def stream() -> Any:
    """Return batches: on a device in every other rank, so that each takes the other's states."""
    alone, odd = os.environ["WORLD_SIZE"] == "1", int(os.environ["RANK"]) % 2
    return chain().to_torch(device="cpu") if alone or odd else chain().to_torch()


def ddp(run: Run) -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    train = stream()
    if run.was_saved:
        saved = torch.load(run.saved)
        model.load_state_dict(saved["model"])
        train.load_state_dict(saved["data"])
    for epoch in range(train.epoch, EPOCHS):
        for batch in train:
            model(batch["x"]).mean().backward()
            if run.step(epoch, batch):
                if dist.get_rank() == 0:
                    saved = {"model": model.state_dict(), "data": train.state_dict()}
                    torch.save(saved, run.saved)
                dist.barrier()


def stateful(run: Run, workers: int = 0) -> None:
    """Use a loader that loads its state when the loop begins, so the epoch is saved beside it."""
    dist.init_process_group("gloo")
    train = chain().to_torch()
    loader, first = StatefulDataLoader(train, batch_size=None, num_workers=workers), 0
    if run.was_saved:
        first, state = torch.load(run.saved)
        loader.load_state_dict(state)
    for epoch in range(first, EPOCHS):
        for batch in loader:
            if run.step(epoch, batch):
                if dist.get_rank() == 0:
                    torch.save([epoch, loader.state_dict()], run.saved)
                dist.barrier()


def stateful_worker(run: Run) -> None:
    stateful(run, workers=1)


def stateful_workers(run: Run) -> None:
    stateful(run, workers=2)


def loader_workers(run: Run) -> None:
    """Read in workers, which know nothing of the loop: it counts the batches of the epoch."""
    dist.init_process_group("gloo")
    train = chain()
    if run.was_saved:
        train.restore(torch.load(run.saved))
    loader = DataLoader(train.to_torch(), batch_size=None, num_workers=2)
    for epoch in range(train.epoch, EPOCHS):
        for count, batch in enumerate(loader, 1):
            if run.step(epoch, batch):
                if dist.get_rank() == 0:
                    torch.save(train.state(batches=count), run.saved)
                dist.barrier()


def distributed_checkpoint(run: Run) -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    train = stream()
    state = {"model": model.state_dict(), "data": train}
    if run.was_saved:
        dcp.load(state, checkpoint_id=run.saved)
    dist.barrier()
    for epoch in range(train.epoch, EPOCHS):
        for batch in train:
            model(batch["x"]).mean().backward()
            if run.step(epoch, batch):
                if dist.get_rank() == 0:
                    shutil.rmtree(run.saved, ignore_errors=True)
                dist.barrier()
                dcp.save(state, checkpoint_id=run.saved)


class Module(lightning.LightningModule):  # type: ignore[misc]  # untyped
    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run, self.layer, self.save = run, torch.nn.Linear(1, 1), False

    def training_step(self, batch: Any, index: int) -> Any:
        self.save = self.run.step(self.current_epoch, batch)
        return self.layer(batch["x"]).mean()

    def on_train_batch_end(self, *_: Any) -> None:
        if self.save:
            self.trainer.save_checkpoint(self.run.saved)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def lightning_fit(run: Run, train: Any = None) -> None:
    trainer = lightning.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=int(os.environ["WORLD_SIZE"]),
        plugins=[TorchElasticEnvironment()],
        max_epochs=EPOCHS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    path = run.saved if run.was_saved else None
    train = chain().to_torch() if train is None else train
    trainer.fit(Module(run), train, ckpt_path=path, weights_only=False)


def lightning_on_device(run: Run) -> None:
    lightning_fit(run, chain().to_torch(device="cpu"))


def note_warnings(run: Run) -> None:
    """Write down that rows may be repeated."""

    def show(message: Any, *_: Any) -> None:
        if isinstance(message, rm.NotResumableWarning):
            (run.saved.parent / "warned").write_text(str(message))

    warnings.showwarning = show  # type: ignore[assignment]  # takes any arguments


def lightning_loader(run: Run) -> None:
    """Put a DataLoader around the stream, which is wrong."""
    note_warnings(run)
    lightning_fit(run, DataLoader(chain().to_torch(), batch_size=None))


def accelerated(run: Run, how: str = "registered") -> None:
    accelerator = accelerate.Accelerator(cpu=True)
    model = accelerator.prepare(torch.nn.Linear(1, 1))
    train = stream() if how == "registered" else chain().to_torch()
    accelerator.register_for_checkpointing(train)
    loader: Any = train
    if how != "registered":
        loader = accelerator.prepare(DataLoader(train, batch_size=None))
    if run.was_saved:
        accelerator.load_state(run.saved)
    for epoch in range(train.epoch, EPOCHS):
        for batch in loader:
            model(batch["x"]).mean().backward()
            if run.step(epoch, batch):
                accelerator.save_state(run.saved)


def accelerate_sharded_and_prepared(run: Run) -> None:
    accelerated(run, "prepared")


def accelerate_state_ahead(run: Run) -> None:
    accelerated(run, "ahead")


def accelerate_prepared_alone(run: Run, **how: Any) -> None:
    """Prepare the loader and register nothing, as the pages of Accelerate do."""
    note_warnings(run)
    config = accelerate.utils.DataLoaderConfiguration(**how)
    accelerator = accelerate.Accelerator(cpu=True, dataloader_config=config)
    batches = rows().shuffle(seed=1).batch(BATCH).to_torch()
    loader = accelerator.prepare(DataLoader(batches, batch_size=None))
    if run.was_saved:
        accelerator.load_state(run.saved)
    for batch in loader:
        if run.step(0, batch):
            accelerator.save_state(run.saved)
            return


def accelerate_stateful_prepared(run: Run) -> None:
    accelerate_prepared_alone(run, use_stateful_dataloader=True)


class Logged(torch.nn.Module):  # type: ignore[misc]  # untyped
    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run, self.layer = run, torch.nn.Linear(1, 1)

    def forward(self, id: Any, x: Any) -> dict[str, Any]:
        self.run.step(0, {"id": id})
        return {"loss": self.layer(x).mean()}


def hugging_face(run: Run, dataset: Any = None, batch: int = BATCH) -> None:
    arguments = transformers.TrainingArguments(
        output_dir=str(run.saved),
        use_cpu=True,
        per_device_train_batch_size=batch,
        num_train_epochs=EPOCHS,
        save_steps=run.save_at or 1000,
        save_strategy="steps",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    trainer = transformers.Trainer(
        Logged(run), arguments, train_dataset=rows().to_torch() if dataset is None else dataset
    )
    trainer.train(resume_from_checkpoint=run.was_saved)


def hugging_face_larger_batches(run: Run) -> None:
    hugging_face(run, batch=BATCH * 2)


def hugging_face_batches(run: Run) -> None:
    """Give it batches, which is wrong."""
    hugging_face(run, rows().batch(BATCH).to_torch())


def keras_fit(run: Run) -> None:
    """Back up the weights with Keras; all ranks resume with those of rank 0."""
    dist.init_process_group("gloo")
    backup = run.saved
    if dist.get_rank() > 0:
        backup = run.saved.parent / f"{os.getpid()}"
        if run.was_saved:
            shutil.copytree(run.saved, backup)
            shutil.copy(run.saved.with_suffix(".json"), backup.with_suffix(".json"))
    dist.barrier()

    class Model(keras.Sequential):  # type: ignore[misc]  # untyped
        def train_step(self, data: Any) -> Any:
            self.id = data[1]
            return super().train_step(data)

    class Log(keras.callbacks.Callback):  # type: ignore[misc]  # untyped
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            run.step(self.epoch, {"id": self.model.id})

    model = Model([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    train = chain().to_keras(features="x", label="id")
    callbacks = [
        Log(),
        keras.callbacks.BackupAndRestore(backup, save_freq=run.save_at or 1000),
        train.follow(backup.with_suffix(".json")),
    ]
    model.fit(train, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=callbacks)


def start(case: Callable[[Run], None], folder: Path, name: str, world: int, **how: Any) -> None:
    """Run a case on some ranks, and wait for them."""
    folder.mkdir(parents=True, exist_ok=True)
    port = str(_free_port())
    children = []
    for rank in range(world):
        if (child := os.fork()) == 0:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
            os.environ |= {"LOCAL_WORLD_SIZE": str(world), "GROUP_RANK": "0"}
            os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port}
            os.environ |= {"TORCHELASTIC_RUN_ID": "1", "ACCELERATE_USE_CPU": "true"}
            _be_rank(case, folder, name, **how)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def _be_rank(case: Callable[[Run], None], folder: Path, name: str, **how: Any) -> None:
    try:
        case(Run(folder, name, **how))
    except BaseException:  # a rank ends here
        text = traceback.format_exc()
        (folder / f"{name}-{os.environ['RANK']}.error").write_text(text)
    finally:
        os._exit(0)


def _free_port() -> int:
    from benchmarks.seaweedfs import free_ports

    return free_ports(1)[0]


def kill_and_resume(case: Callable[[Run], None], folder: Path) -> None:
    """Kill two ranks, resume with two; then with one, kill that, and resume with two again."""
    start(case, folder, "killed", 2, save_at=9)  # in epoch 1, after 3 of 6 steps
    shutil.copytree(folder, folder / "other")
    start(case, folder, "resumed", 2, save_at=None)
    start(case, folder / "other", "one", 1, save_at=2)
    start(case, folder / "other", "two", 2, save_at=None)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    # These import what each rank would import.
    chain().to_torch(device="cpu")
    assert transformers.Trainer
    gc.collect()
    gc.freeze()  # a collection in a rank would copy the memory of a million objects
    for case in (
        ddp,
        stateful,
        stateful_worker,
        stateful_workers,
        loader_workers,
        distributed_checkpoint,
        accelerated,
        keras_fit,
    ):
        kill_and_resume(case, folder / case.__name__)
    path = folder / "lightning"
    start(lightning_fit, path, "killed", 2, save_at=9)
    for case in (lightning_fit, lightning_on_device):
        start(case, path, case.__name__, 2, save_at=None)
    start(lightning_fit, path, "fewer", 1, save_at=None)
    for name in ("killed", "resumed"):
        start(lightning_loader, folder / "lightning_loader", name, 1, save_at=9)
    for case in (accelerate_prepared_alone, accelerate_stateful_prepared):
        for name in ("saved", "resumed"):
            start(case, folder / case.__name__, name, 1, save_at=2)
    path = folder / "hugging_face"
    start(hugging_face, path / "whole", "whole", 2, save_at=None)
    start(hugging_face, path, "killed", 2, save_at=9)
    shutil.copytree(path, path / "other")
    start(hugging_face, path, "resumed", 2, save_at=None)
    for case in (hugging_face, hugging_face_larger_batches):
        start(case, path / "other", case.__name__, 1, save_at=None)
    for case, world in (
        (accelerate_sharded_and_prepared, 2),
        (accelerate_state_ahead, 1),
        (hugging_face_batches, 1),
    ):
        start(case, folder / case.__name__, "refused", world, save_at=2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
