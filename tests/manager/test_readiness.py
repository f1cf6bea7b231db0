"""When the server says that it is ready, and how it goes."""

import asyncio
from functools import partial

import pytest

from tests.admission.builders import make_class, make_context, make_pod, make_review
from tests.serving.conftest import GivenObjects
from tests.workloads import eventually as until
from webhook.admission.context import Objects
from webhook.component_base import supervision

HIGH = make_class("high", 100)
GOOD = make_review(make_pod(priorityClassName="high"))


@pytest.fixture
def quick_restarts(monkeypatch):
    """Failed tasks are started again within milliseconds."""
    monkeypatch.setattr(supervision, "_Task", partial(supervision._Task, 0.001, 0.01))


async def test_probes_answer_on_their_own_plain_port(start):
    """Liveness needs nothing; readiness is short unless asked for more."""
    async with start() as running:
        assert await running.get("/healthz") == (200, "ok\n")
        assert await running.get("/readyz") == (200, "ok\n")
        status, report = await running.get("/readyz?verbose")
        _, metrics = await running.get("/metrics")
    assert "giveway_policies_current 1.0" in metrics, "nothing is broken where there are no policies"
    assert status == 200
    lines = report.splitlines()
    assert lines[0] == "[+]policies ok: 0 PriorityPolicies and 0 PreemptionPolicies in use"
    assert lines[1].startswith("[+]certificate ok: expires ")
    assert lines[2:] == [
        "[+]caches ok", "[+]listener ok", "[+]shutdown ok",
        "readyz check passed",
    ]  # fmt: skip


async def test_a_background_task_that_fails_is_started_again(start, quick_restarts):
    """Once, it is a metric and a traceback in the log; time and again, liveness fails and says why."""

    class Failing(GivenObjects):
        run_ok = False

        async def run(self):
            if not self.run_ok:
                raise OSError("no more files")
            await super().run()

    source = Failing(Objects())
    async with start(source=source) as running:
        line = await running.logged(level="error")
        assert "task cluster ended and is started again" in line["message"]
        assert "no more files" in line["exception"]

        async def dead() -> bool:
            return (await running.get("/healthz"))[0] == 500

        await until(dead)
        _, text = await running.get("/healthz")
        assert text.startswith("task cluster ended ")
        assert text.endswith(" times in a row: no more files\n")
        source.run_ok = True
        _, metrics = await running.get("/metrics")
    count = next(line for line in metrics.splitlines() if 'task_failures_total{task="cluster"}' in line)
    assert float(count.split()[-1]) >= 8


async def test_without_its_caches_the_server_gives_no_verdict(start):
    """Not ready means 503 on both ports, never a wrong answer."""
    source = GivenObjects(Objects([HIGH]), absent=("priorityclasses", "namespaces"))
    async with start(source=source) as running:
        status, report = await running.get("/readyz")
        assert status == 503
        assert "[-]caches failed: nothing heard yet of priorityclasses, namespaces" in report
        status, answer = await running.post("/mutate", GOOD)
        assert status == 503
        assert answer["status"]["message"] == "giveway is not ready: nothing heard yet of priorityclasses, namespaces"
        source.absent = ()
        assert (await running.get("/readyz"))[0] == 200
        assert (await running.post("/mutate", GOOD))[0] == 200


async def test_a_stopping_server_finishes_what_it_has(start):
    """On stop readiness goes first; a review in hand gets its answer; then the listener is closed."""
    asked = asyncio.Event()

    async def slow(lookup):
        asked.set()
        await asyncio.sleep(0.3)
        return lookup.corrected({"priorityclasses": {"high": HIGH}})

    source = GivenObjects(make_context().lookup, slow)
    async with start(source=source, shutdown_delay_duration=0.1) as running:
        in_hand = asyncio.create_task(running.post("/mutate", GOOD))
        await asked.wait()
        draining = asyncio.create_task(running.manager.drain())
        await asyncio.sleep(0.02)
        status, report = await running.get("/readyz")
        assert status == 503
        assert "[-]shutdown failed: the server is stopping" in report
        await draining
        await running.manager.__aexit__()
        status, _ = await in_hand
        assert status == 200
