"""What trainers do to a dataset that loses rows or repeats them, and what to write instead.

A dataset is not told who reads it, so these look at who calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

from recmap.errors import NotResumableWarning, OptionError
from recmap.warn import warn

_LOADERS = ("torch.utils.data.dataloader", "torchdata.stateful_dataloader.stateful_dataloader")
# How many callers away a trainer may be.
_FAR = 30


def is_prepared_by_accelerate(caller: FrameType) -> bool:
    """Return whether the caller, who sets the epoch, is a loader that Accelerate has prepared."""
    return _module(caller) == "accelerate.data_loader"


def refuse_second_division(caller: FrameType) -> None:
    """Raise if the caller is Accelerate, which divides the rows of a rank among all ranks again.

    It passes on the epoch to all that it has prepared. Nothing else about it can be seen here.
    """
    if not is_prepared_by_accelerate(caller):
        return
    if caller.f_globals["PartialState"]().num_processes > 1:
        raise OptionError(
            "shard() and accelerator.prepare() both divide the rows among the ranks, so most "
            "would never be read; keep shard(), do not prepare this loader, and write "
            "accelerator.register_for_checkpointing(train)"
        )


_REGISTER = (
    "use shard(), iterate over train = ds.to_torch() itself, and write "
    "accelerator.register_for_checkpointing(train)"
)


def warn_of_place_not_saved(caller: FrameType, *, counted: bool) -> None:
    """Warn that Accelerate does not save the position of a loader that it prepared.

    The Trainer of transformers then skips batches, for which it needs to know their number.
    """
    trainer = _epoch_of_transformers(caller)
    if trainer is not None:
        if not counted and trainer.get("steps_trained_in_current_epoch"):
            warn(
                "the Trainer does not know how many rows an epoch has, so it skips batches from "
                "the start of the first epoch, and a run that was in a later one sees rows twice; "
                "put shuffle(), cache() or take() after filter(), which count the rows: "
                "train_dataset=ds.filter(...).shuffle(seed=1).to_torch()",
                NotResumableWarning,
            )
        return
    warn(
        "accelerator.save_state() does not save the position of a loader that "
        "accelerator.prepare() returned, so a resumed run begins again with the first epoch; to "
        f"resume after the last batch, {_REGISTER}",
        NotResumableWarning,
    )


def refuse_state_of_prepared(caller: FrameType) -> None:
    """Raise if a loader that Accelerate has prepared resumes: it counts batches of all ranks."""
    if any(_module(each) == "accelerate.data_loader" for each in _callers(caller)):
        raise OptionError(
            "use_stateful_dataloader=True with accelerator.prepare() does not resume at the same "
            f"batch on all ranks, nor in the same epoch; do not prepare this loader: {_REGISTER}"
        )


def refuse_state_ahead(caller: FrameType) -> None:
    """Raise if Accelerate saves the state of what it has prepared: it has taken a batch ahead."""
    if any(_module(each) == "accelerate.checkpointing" for each in _callers(caller)):
        raise OptionError(
            "accelerator.prepare() has taken a batch ahead of the loop, which a resumed loop would "
            f"miss; do not prepare this loader: {_REGISTER}"
        )


def check_lightning_saves(caller: FrameType) -> None:
    """Warn, or raise in a resumed epoch, if Lightning trains on a ``DataLoader`` around a stream.

    The caller asks for the length, as Lightning does before it trains.
    """
    if _module(caller) not in _LOADERS:
        return
    loop = next((f for f in _callers(caller) if _module(f).endswith(".loops.fit_loop")), None)
    if loop is None:
        return
    instead = (
        "return the stream itself where Lightning asks for a dataloader, without DataLoader "
        "around it: train.shard(even='drop').to_torch()"
    )
    plain = _module(caller) == _LOADERS[0]
    if plain and is_in_epoch(loop.f_locals.get("self")):
        raise OptionError(
            "Lightning resumes in the middle of an epoch, but has not saved where the DataLoader "
            f"was: rows would come twice, and others never; {instead}, and resume with the "
            "checkpoint of such a run, or from the end of an epoch"
        )
    warn(
        f"Lightning does not save in its checkpoints where {'a' if plain else 'this'} DataLoader "
        f"is{'' if plain else ' at the end of an epoch'}, so a resumed run repeats rows; {instead}",
        NotResumableWarning,
    )


def is_in_epoch(loop: Any) -> bool:
    """Return whether a loop of Lightning has been restored in the middle of an epoch."""
    try:
        progress = loop.epoch_loop.batch_progress
        return bool(loop.restarting and progress.current.ready and not progress.is_last_batch)
    except AttributeError:  # another version of Lightning
        return False


def loop_of_lightning(caller: FrameType) -> Any:
    """Return the loop of Lightning that says which epoch begins; None for any other caller."""
    if not _module(caller).endswith(".utilities.data") or "lightning" not in _module(caller):
        return None
    loops = (".loops.fit_loop", ".loops.evaluation_loop")
    found = (each for each in _callers(caller) if _module(each).endswith(loops))
    return next((each.f_locals.get("self") for each in found), None)


def repeats_batches(loop: Any) -> bool:
    """Return whether Lightning is to train on the same few batches in every epoch.

    It turns off the shuffling of a ``DataLoader`` for that.
    """
    trains = hasattr(loop, "epoch_loop")
    return trains and bool(getattr(loop.trainer, "overfit_batches", 0))


def has_several(loop: Any) -> bool:
    """Return whether Lightning trains on several streams; a shorter one then begins again."""
    return len(getattr(getattr(loop, "_combined_loader", None), "flattened", ())) > 1


def fetched_ahead(loop: Any) -> int:
    """Return how many batches a loop has taken but not trained on.

    It takes one ahead if it does not know how many there are.
    """
    return len(getattr(getattr(loop, "_data_fetcher", None), "batches", ()))


def has_fetched(loop: Any) -> bool:
    """Return whether a loop has taken the first batch of the epoch that begins."""
    if not hasattr(loop, "epoch_loop") or not fetched_ahead(loop):
        return False
    continues = loop.is_resuming or loop.epoch_loop.restarting
    return bool(continues or not loop.trainer.current_epoch)


def loop_that_fetches(caller: FrameType) -> Any:
    """Return the loop of Lightning that begins to iterate before its epoch; None if none does."""
    for each in _callers(caller):
        if _module(each).endswith(".loops.fit_loop"):
            return each.f_locals.get("self") if each.f_code.co_name == "setup_data" else None
    return None


def refuse_several_uncounted(*, counted: bool) -> None:
    """Raise if Lightning resumes on several streams, and does not know when they end.

    It does not save which of them has ended before, and would begin that one too often.
    """
    if not counted:
        raise OptionError(
            "Lightning cannot resume in the middle of an epoch with several streams if the length "
            "of one is not known; shuffle() or cache() after filter() counts the rows, or resume "
            "from the end of an epoch"
        )


def epoch_in_lightning(loop: Any, epoch: int) -> int:
    """Return the epoch that begins when Lightning says that one does.

    If it resumes from the end of an epoch with ``max_steps``, it counts that one twice, but not in
    ``current_epoch``.
    """
    return min(epoch, loop.trainer.current_epoch) if hasattr(loop, "epoch_loop") else epoch


def refuse_batch_too_many(loop: Any, *, alone: bool) -> None:
    """Raise if Lightning takes a batch of the next epoch for one that has ended.

    It does with ``max_steps``, if it resumes at the end of an epoch, and does not validate there.
    One stream alone whose length is known has nothing left then.
    """
    ended = getattr(loop, "restarted_on_epoch_end", False) and loop.trainer.max_steps != -1
    fetcher = getattr(loop, "_data_fetcher", None)
    if ended and not alone and not loop.epoch_loop._should_check_val_fx(fetcher):  # noqa: SLF001
        raise OptionError(
            "with max_steps, Lightning trains on a batch twice if it resumes at the end of an "
            "epoch, and does not validate there; resume in the middle of an epoch, validate after "
            "every epoch, or use max_epochs"
        )


def ahead_when_saved(caller: FrameType) -> int:
    """Return how many batches Lightning has taken ahead of the checkpoint that it saves."""
    for each in _callers(caller):
        if _module(each).endswith(".loops.fit_loop"):
            return fetched_ahead(each.f_locals.get("self"))
    return 0


def refuse_shared_stream(loop: Any, feed: Any) -> None:
    """Raise if Lightning validates, in the middle of an epoch, on what it trains on."""
    fit = getattr(getattr(loop, "trainer", None), "fit_loop", None)
    if fit is None or fit is loop:
        return
    trained = getattr(getattr(fit, "_combined_loader", None), "flattened", ())
    progress = getattr(fit.epoch_loop, "batch_progress", None)
    done = progress is None or not progress.current.ready or progress.is_last_batch
    if not done and any(getattr(each, "_feed", None) is feed for each in trained):
        raise OptionError(
            "Lightning validates in the middle of an epoch on the pipeline that it trains on, "
            "which would lose its place in it; use a separate pipeline for validation"
        )


def check_not_skipped(caller: FrameType, *, resumed: bool, varies: bool) -> None:
    """Raise, or warn, if ``skip_first_batches()`` of Accelerate skips batches of a stream."""
    for each in _callers(caller):
        loader = each.f_locals.get("self") if _module(each) == "accelerate.data_loader" else None
        if not getattr(loader, "skip_batches", 0):
            continue
        if resumed:
            raise OptionError(
                "skip_first_batches() would skip batches of a stream that already continues after "
                "the last one, so they would be lost; leave it out, and iterate over train itself"
            )
        if varies and type(loader).__name__ == "SkipDataLoader":
            warn(
                "skip_first_batches() reads the batches that it skips, and does not tell the "
                f"stream which epoch it is in; {_REGISTER}",
                NotResumableWarning,
            )
        return


def takes_batch_ahead(caller: FrameType) -> bool:
    """Return whether a loader iterates that takes a batch before the loop gets the one before it.

    Those that Ray Train and Accelerate have prepared do.
    """
    for each in _callers(caller):
        module = _module(each)
        if module == "ray.train.torch.train_loop_utils" and each.f_code.co_name == "__iter__":
            return True
        if module == "accelerate.data_loader" and each.f_code.co_name == "__iter__":
            return hasattr(each.f_locals.get("self"), "iteration")
    return False


def epoch_of_prepared(caller: FrameType) -> int | None:
    """Return the epoch of the loader that Accelerate has prepared, if it asks for the rows.

    Its sampler does, when an epoch begins. Accelerate does not tell the dataset on several ranks,
    nor when it skips batches.
    """
    for each in _callers(caller):
        if _module(each) == "accelerate.data_loader" and each.f_code.co_name == "__iter__":
            epoch = getattr(each.f_locals.get("self"), "iteration", None)
            if type(epoch) is int:
                return epoch
    return None


def refuse_other_ranks(caller: FrameType, saved: int, world: int) -> None:
    """Raise if Lightning, which counts batches itself, resumes an epoch with other ranks."""
    if saved == world or not any(".combined_loader" in _module(each) for each in _callers(caller)):
        return
    raise OptionError(
        f"Lightning counts the batches of an epoch itself, so it cannot continue in the middle of "
        f"one with a different number of ranks (saved with {saved}, now {world}): rows would be "
        "left out; finish the epoch with the same number, or resume from the end of an epoch"
    )


def refuse_other_steps(caller: FrameType) -> None:
    """Raise if the Trainer of transformers resumes with more or fewer rows in a step.

    It counts steps. The caller asks for the number of rows, as a sampler does when an epoch begins.
    """
    found = _epoch_of_transformers(caller)
    if found is None:
        return
    trainer: Any = found.get("self")
    steps: Any = found.get("num_update_steps_per_epoch")
    try:
        arguments, done = trainer.args, trainer.state.global_step
        apart = abs(trainer.state.epoch * steps - done) if done else 0.0
        # The last step of an epoch may be of fewer batches.
        allowed = 1e-6 * done if arguments.gradient_accumulation_steps == 1 else 1.0
    except (AttributeError, TypeError):  # another version of transformers
        return
    if apart >= allowed > 0 and not arguments.ignore_data_skip:
        raise OptionError(
            f"the Trainer resumes after {done:,} steps, but a step had a different number of rows "
            "when it saved, so some rows would come twice and others never; keep ranks x "
            "per_device_train_batch_size x gradient_accumulation_steps unchanged"
        )


def _epoch_of_transformers(caller: FrameType) -> Mapping[str, Any] | None:
    """Return the variables of the Trainer of transformers where it runs an epoch."""
    for each in _callers(caller):
        if (_module(each), each.f_code.co_name) == ("transformers.trainer", "_run_epoch"):
            return each.f_locals
    return None


def _callers(frame: FrameType) -> Iterator[FrameType]:
    """Yield a frame and those that called it."""
    following: FrameType | None = frame
    for _ in range(_FAR):
        if following is None:
            return
        yield following
        following = following.f_back


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def refuse_second_batching(caller: Any) -> None:
    """Raise if the caller is a ``DataLoader`` that would stack batches into batches."""
    if not getattr(caller, "auto_collation", False):
        return
    collate = getattr(caller, "collate_fn", None)
    collate = getattr(collate, "data_collator", collate)  # what transformers wraps
    module = getattr(collate, "__module__", None) or ""
    if module.startswith("transformers."):
        raise OptionError(
            "the pipeline gives batches already, and the Trainer of transformers would stack them "
            "into batches of batches: leave out batch(n) and shard(), and give the Trainer rows: "
            "train_dataset=ds.to_torch()"
        )
    if module == "torch.utils.data._utils.collate":
        raise OptionError(
            "the pipeline gives batches already, and DataLoader would stack them into batches of "
            "batches, with another axis: write DataLoader(..., batch_size=None), or leave out "
            "batch(n) and let DataLoader make the batches"
        )
