"""Exceptions in workers, as the consumer gets them."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import numpy as np
import pytest

import recmap as rm
from recmap.model.schema import Batch
from recmap.pipeline.workers.pool import Request
from tests import jobs
from tests.jobs import pool_of
from tests.processes import WITH_WORKERS

pytestmark = WITH_WORKERS

KINDS = ["serial", "threads:2", "fork:2", "spawn:2"]
PROCESSES = KINDS[2:]


@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_comes_after_the_earlier_results(kind: str) -> None:
    numbers = []
    with pool_of(jobs.third_fails, kind) as pool:
        with pytest.raises(rm.MapError, match="three is too many") as info:
            for request, _ in pool.run(jobs.requests(), ahead=6):
                numbers.append(request.number)
        assert numbers == [0, 1, 2]
        assert str(info.value) == "ValueError: three is too many"
        assert info.value.cause_type == "ValueError"
        with pytest.raises(rm.OptionError, match="closed"):
            next(pool.run(jobs.requests(), ahead=1))


@pytest.mark.parametrize("kind", PROCESSES)
def test_the_note_is_the_traceback_of_the_worker(kind: str) -> None:
    with pytest.raises(rm.MapError) as info:
        list(pool_of(jobs.third_fails, kind).run(jobs.requests(), ahead=6))
    (note,) = info.value.__notes__
    assert "of 2:\nTraceback (most recent call last):\n" in note
    assert 'raise ValueError("three is too many")  # the user\'s own line' in note
    assert "recmap/pipeline" not in note


@pytest.mark.parametrize("kind", ["serial", "threads:2"])
def test_the_cause_is_the_exception_itself_if_possible(kind: str) -> None:
    with pytest.raises(rm.MapError) as info:
        list(pool_of(jobs.third_fails, kind).run(jobs.requests(), ahead=6))
    assert isinstance(info.value.__cause__, ValueError)


@pytest.mark.parametrize("kind", KINDS)
def test_recmaps_own_errors_keep_their_class_and_facts(kind: str) -> None:
    with pytest.raises(rm.CorruptRecordError, match="broken") as info:
        list(pool_of(jobs.raise_corrupt, kind).run(jobs.requests(), ahead=6))
    error = info.value
    assert str(error) == "x.tfrecord: broken"
    assert (error.file, error.record, error.byte, error.field) == ("x.tfrecord", 4, 88, None)
    assert error.__notes__[0] == "row 4 of the batch"


@pytest.mark.parametrize("kind", KINDS)
def test_a_user_subclass_of_a_recmap_error_arrives_as_that_error(kind: str) -> None:
    with pytest.raises(rm.FieldMismatchError, match="row 5") as info:
        list(pool_of(jobs.raise_own, kind).run(jobs.requests(), ahead=6))
    assert str(info.value) == "row 5: not a number"
    assert (info.value.record, info.value.field) == (5, "x")


def test_an_exception_that_cannot_be_printed_still_arrives() -> None:
    class Mute(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise RuntimeError

    def work(_: Request) -> Batch:
        raise Mute

    for kind in ("threads:2", "fork:2"):
        with pytest.raises(rm.MapError, match="Mute") as info:
            list(pool_of(work, kind).run(jobs.requests(), ahead=1))
        assert info.value.cause_type == "Mute"


@pytest.mark.parametrize("kind", ["threads:2", "fork:2"])
def test_work_that_calls_exit_is_an_error(kind: str) -> None:
    with pytest.raises(rm.MapError, match="SystemExit: 4"):
        list(pool_of(lambda _: sys.exit(4), kind).run(jobs.requests(), ahead=1))


def test_processes_that_cannot_be_started_are_an_error_with_a_way_out() -> None:
    ds = rm.from_arrays({"x": np.arange(3)})
    Path("gone").mkdir()
    with contextlib.chdir("gone"):
        Path.cwd().rmdir()
        with pytest.raises(rm.OptionError, match='"spawn:1": .* not start .*"threads:1"'):
            list(ds.map(dict, workers="spawn:1").batch(2))
