"""Reviews that take long are answered beside the others: one at a time, in fair turns by address."""

import asyncio
import json
import threading
import time

import pytest

from tests.admission.builders import make_class, make_pod, make_review
from tests.admission.builders import response as response_of
from tests.policy.builders import engine, rules, table
from webhook.admission.context import OWN_NAMESPACE, Objects
from webhook.admission.webhook import review
from webhook.kube.objects.cluster_scoped import Namespace
from webhook.kube.objects.meta import ObjectMeta
from webhook.serving import review_handler
from webhook.serving.review_handler import Received

HIGH = make_class("high", 100)
RESOLVED = {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}
ONE = "{name: r%d, validate: {expression: 'object.spec.containers.map(c, c.name).size() > 0'}}"
LONG = "n" * 300_000
"""Makes a review dear."""
MAIN = threading.main_thread()


def engine_of(count: int):
    """So many rules whose expressions cost the more the more containers a pod has."""
    return engine(rules(*(ONE % number for number in range(count))))


def pod_of(containers: int):
    return make_review(make_pod(**RESOLVED, containers=[{"name": "c"}] * containers))


def named(name: str) -> bytes:
    """A dear review of a pod of that name."""
    return json.dumps(make_review(make_pod(name, priorityClassName="high", hostname=LONG))).encode()


def config_map(data: dict[str, str]):
    """A review of the ConfigMap of the policies."""
    meta = {"name": "giveway-policies", "namespace": OWN_NAMESPACE}
    asked = make_review({"kind": "ConfigMap", "metadata": meta, "data": data})
    asked["request"]["name"] = meta["name"]
    return asked


@pytest.fixture
def threads(monkeypatch):
    """The threads in which reviews were carried out to the end."""
    found = []

    def noting(*arguments):
        done = review(*arguments)
        found.append(threading.current_thread())
        return done

    monkeypatch.setattr(review_handler, "review", noting)
    return found


@table(
    "body, beside",
    {
        "20 KiB in long texts": (make_review(make_pod(tolerations=["a" * 200] * 100)), False),
        "15 KiB in empty maps": (make_review(make_pod(tolerations=[{}] * 5000)), True),
        "40 KiB": (make_review(make_pod(tolerations=["a" * 400] * 100)), True),
        "little to evaluate": (pod_of(5), False),
        "much to evaluate": (pod_of(200), True),
        "policies": (config_map({"a.yaml": ""}), True),
    },
)
async def test_what_is_dear(start, threads, body, beside):
    """Reviews of many bytes, of many small values, and of much to evaluate: with the answer that they get here."""
    policies = engine_of(3)
    objects = Objects([HIGH], [Namespace(metadata=ObjectMeta(name=name)) for name in ("team-a", OWN_NAMESPACE)])
    async with start(objects=objects, engine=policies) as running:
        sent = json.dumps(body, separators=(",", ":")).encode()
        status, answer = await running.post("/validate", sent)
        context = running.server.handler.context.changed(allowance=None)
        assert (status, answer) == (200, response_of(review(context, "validate", sent)))
    assert [thread is not MAIN for thread in threads] == [beside]


async def test_an_object_that_costs_too_much_in_all_is_refused(start):
    """The rules for which nothing is left of 100 ms are named, and what would be right."""
    async with start(engine=engine_of(60)) as running:
        status, answer = await running.post("/validate", pod_of(600))
    assert (status, answer["allowed"]) == (200, False)
    message = answer["status"]["message"]
    assert "rule p/r10 could not be evaluated" in message
    assert "more than 100 ms" in message
    assert "make it smaller" in message


@pytest.fixture
def slow(monkeypatch):
    """Dear reviews take until they are let go, and are noted when they begin; `let_go` lets all go."""
    begun, let_go = [], threading.Event()

    def waiting(context, phase, body):
        if threading.current_thread() is not MAIN:
            begun.append(json.loads(body)["request"]["object"]["metadata"]["name"])
            let_go.wait(10)
        return review(context, phase, body)

    monkeypatch.setattr(review_handler, "review", waiting)
    yield begun, let_go
    let_go.set()


async def test_others_are_answered_meanwhile(running, slow):
    """A dear review holds up none that is not."""
    begun, let_go = slow
    dear = asyncio.create_task(running.post("/mutate", named("dear")))
    for _ in range(20):
        assert (await running.post("/mutate", make_review(make_pod(priorityClassName="high"))))[0] == 200
    assert not dear.done()
    let_go.set()
    assert (await dear)[0] == 200
    assert begun == ["dear"]


async def test_one_at_a_time_in_fair_turns(running, slow):
    """An address that sends many waits for its own, and another one for no more than one of these that waits, too."""
    begun, let_go = slow
    handler = running.server.handler
    sent = [("10.0.0.66", f"many-{number}") for number in range(4)] + [("10.0.0.1", "honest")]
    reviews = (Received(address, "mutate", named(name)) for address, name in sent)
    tasks = [asyncio.create_task(handler._review(asked, handler.context)) for asked in reviews]
    await asyncio.sleep(0.1)
    assert begun == ["many-0"]
    let_go.set()
    found = await asyncio.gather(*tasks)
    assert [one.asked.shown_name for one in found] == [name for _, name in sent]
    assert begun == ["many-0", "many-1", "honest", "many-2", "many-3"]


async def test_a_deadline_leaves_it_to_its_end(running, slow):
    """A review that is given up is answered in time; the next dear one begins when its thread has come to its end."""
    begun, let_go = slow
    began = time.monotonic()
    status, answer = await running.post("/mutate?timeout=500ms", named("late"))
    assert (status, answer["status"]["reason"]) == (504, "Timeout")
    assert time.monotonic() - began < 5
    following = asyncio.create_task(running.post("/mutate", named("next")))
    await asyncio.sleep(0.1)
    assert begun == ["late"]
    let_go.set()
    assert (await following)[0] == 200
    assert running.server.handler._bodies.bytes == 0


async def test_policies_hold_up_no_dear_review(running, slow):
    """To read and compile a large set takes seconds, so it has turns of its own."""
    _, let_go = slow
    handler = running.server.handler
    policies = json.dumps(config_map({"a.yaml": ""})).encode()
    await handler._dearest.enter("10.0.0.1")  # a set is being compiled
    judged = asyncio.create_task(handler._review(Received("10.0.0.2", "validate", policies), handler.context))
    let_go.set()
    assert (await running.post("/mutate", named("dear")))[0] == 200
    assert not judged.done()
    handler._dearest.leave()
    assert (await judged).answer.code == 200


async def test_an_address_with_many_ordinary_reviews_waits_for_its_own(running):
    """So many are answered in one round of the event loop; then those of other addresses come in between."""
    order = []
    handler, body = running.server.handler, json.dumps(pod_of(1)).encode()

    async def ask(address: str) -> None:
        await handler._review(Received(address, "validate", body), handler.context)
        order.append(address)

    await asyncio.gather(*(ask("10.0.0.66") for _ in range(100)), ask("10.0.0.1"))
    assert order.index("10.0.0.1") < 2 * review_handler._A_ROUND + 2
