"""Background tasks are kept running, and one that cannot be is named."""

import asyncio
from functools import partial

import pytest

from tests.kube.server import until
from webhook.component_base import supervision
from webhook.component_base.supervision import Supervisor


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(supervision, "_Task", partial(supervision._Task, 0.001, 0.01))
    monkeypatch.setattr(supervision, "_TOLERATED", 3)


async def cancelled_inside():
    raise asyncio.CancelledError


async def raising():
    raise OSError("no more files")


async def returning():
    pass


@pytest.mark.parametrize(
    ("work", "said"),
    [
        pytest.param(raising, "no more files", id="an error"),
        pytest.param(returning, "it returned, although it is meant to run until the process ends", id="a return"),
        pytest.param(cancelled_inside, "CancelledError", id="a cancellation from within"),
    ],
)
async def test_work_that_ends_is_started_again_and_named_once_it_keeps_ending(work, said):
    """Each end is counted; from the tolerated number in a row on, the problem says which task and why."""
    failures = []
    supervisor = Supervisor(failures.append)
    task = asyncio.create_task(supervisor.keep("files", work))
    await until(supervisor.problem)
    task.cancel()
    assert failures[:3] == ["files"] * 3
    assert supervisor.problem().startswith("task files ended ")
    assert supervisor.problem().endswith(f" times in a row: {said}")


async def test_failures_below_the_tolerated_number_are_no_problem():
    """What went wrong now and then is counted and nothing more."""
    failures = []

    async def twice():
        if len(failures) < 2:
            raise OSError
        await asyncio.Event().wait()

    supervisor = Supervisor(failures.append)
    task = asyncio.create_task(supervisor.keep("files", twice))
    await until(lambda: len(failures) == 2)
    assert supervisor.problem() == ""
    task.cancel()


async def test_a_task_that_runs_steadily_again_is_no_problem_any_more(monkeypatch):
    """A long run ends the row of failures."""
    monkeypatch.setattr(supervision, "_STEADY", 0.05)
    failures = []

    async def at_last():
        if len(failures) < 5:
            raise OSError
        await asyncio.Event().wait()

    supervisor = Supervisor(failures.append)
    task = asyncio.create_task(supervisor.keep("files", at_last))
    await until(lambda: len(failures) == 5)
    await until(lambda: supervisor.problem() == "")
    task.cancel()


async def test_a_kept_task_can_be_cancelled():
    """Cancelling ends it at once, whether the work runs or waits to be started again."""
    for work in (asyncio.Event().wait, raising):
        task = asyncio.create_task(Supervisor().keep("files", work))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
