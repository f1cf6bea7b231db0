"""What is applied beside what the policies say, who enforces, and the keeper of what is applied.

Applied policies follow the classes and the time; what is in force is not the keeper's to say.
"""

import asyncio
import copy
import json
from contextlib import asynccontextmanager

import pytest

from tests.kube.server import Server, answer
from tests.policy.builders import engine, rules
from tests.workloads import eventually
from webhook.kube.client import Client
from webhook.kube.resources import MUTATING_ADMISSION_POLICY, PRIORITY_CLASS, VALIDATING_ADMISSION_POLICY
from webhook.native import policy_keeper
from webhook.native.compiler import compile_policies
from webhook.native.drift import Mode, drift, mode
from webhook.native.objects import MUTATING, VALIDATING, Settings
from webhook.native.policy_keeper import PolicyKeeper
from webhook.policy.model.values import CAN_BE_PREEMPTED

RESOURCES = {VALIDATING: VALIDATING_ADMISSION_POLICY, MUTATING: MUTATING_ADMISSION_POLICY}
SETTINGS = Settings(namespace="giveway-system", reconciler="system:serviceaccount:a:b", kept=True)
SHIELD = f"{{name: shield, protectAnnotations: {{keys: [{CAN_BE_PREEMPTED}]}}}}"
SPEC = rules(
    f"{{name: copy, copyAnnotations: [{CAN_BE_PREEMPTED}]}}",
    SHIELD,
    exceptions="[{match: {namespaces: [a]}, rules: [shield], reason: r, owner: o, until: 2026-11-30}]",
)
POLICIES = engine(SPEC).policies
END = 1_796_083_200.0


@asynccontextmanager
async def keeping(objects, now, *faults, **settings):
    """An API server with these objects, which makes such faults at first, and a keeper at work."""
    async with Server() as server:
        server.put(PRIORITY_CLASS.path(name="plain"), value=1)
        for one in (one for one in objects if one["kind"] in RESOURCES):
            server.put(RESOURCES[one["kind"]].path(name=one["metadata"]["name"]), **copy.deepcopy(one))
        for fault in faults:
            server.fault(fault, contains="admissionpolicies", times=1000)
        async with Client.for_server(server.url) as client:
            keeper = PolicyKeeper(client, POLICIES, SETTINGS, clock=lambda: now[0], **settings)
            task = asyncio.create_task(keeper.run())
            try:
                yield keeper, server
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


def written(server):
    """The names of the policies that were written."""
    return [path.rpartition("/")[2] for path in server.asked("PUT")]


def applied(now: float):
    return compile_policies(POLICIES, [], SETTINGS, now).objects


async def test_a_new_class_gets_into_the_table_at_once():
    """What is in step is not written; the watch tells of the class, and only the object with the table is written."""
    async with keeping(applied(END - 60), [END - 60]) as (keeper, server):
        await eventually(lambda: keeper.note == "in step")
        assert written(server) == []
        meta = {"name": "offline", "annotations": {CAN_BE_PREEMPTED: "true"}}
        server.put(PRIORITY_CLASS.path(name="offline"), metadata=meta, value=1)
        await eventually(lambda: written(server))
    assert written(server) == ["giveway-builtin-pods-mutate"]
    assert "{'offline/1': 'true'}" in json.dumps(server.objects)


async def test_an_exception_ends_on_time():
    """At its end the policies are compiled again, without waiting for the next round."""
    now = [END - 0.3]
    async with keeping(applied(now[0]), now, period=600.0) as (keeper, server):
        await eventually(lambda: keeper.note == "in step")
        now[0] = END + 1
        await eventually(lambda: "giveway-builtin-annotations-enforce" in written(server))


async def test_what_somebody_changed_is_put_back_and_what_is_not_giveways_is_left_alone():
    """A policy of the same name that somebody else made is not written."""
    objects = applied(END + 1)
    objects[0]["metadata"]["labels"] = {}
    objects[0]["spec"] = {}
    objects[4]["spec"]["failurePolicy"] = "Ignore"
    async with keeping(objects, [END + 1]) as (_, server):
        await eventually(lambda: written(server))
    assert written(server) == [objects[4]["metadata"]["name"]]


async def test_nothing_is_made_or_bound():
    """What is not applied stays so, and the keeper says which."""
    async with keeping([], [END + 1]) as (keeper, server):
        await eventually(lambda: "are not applied: giveway-builtin-pods-mutate" in keeper.note)
    assert {method for method, *_ in server.requests} == {"GET"}


@pytest.mark.parametrize("status", [403, 500])
async def test_an_api_server_that_refuses_is_asked_again(status):
    """The keeper says why, and goes on."""
    async with keeping(applied(END + 1), [END + 1], answer(status), period=0.05) as (keeper, server):
        await eventually(lambda: "cannot be kept: " in keeper.note)
        server.faults.clear()
        await eventually(lambda: keeper.note == "in step")


async def test_classes_that_cannot_be_compiled_leave_the_policies_as_they_are(monkeypatch):
    """The keeper says what raised, and goes on when it can."""
    compiled = policy_keeper.compile_policies
    objects = applied(END + 1)
    monkeypatch.setattr(policy_keeper, "compile_policies", lambda *_: 1 / 0)
    async with keeping(objects, [END + 1], period=0.05) as (keeper, server):
        await eventually(lambda: "cannot be kept: ZeroDivisionError" in keeper.note)
        monkeypatch.setattr(policy_keeper, "compile_policies", compiled)
        await eventually(lambda: keeper.note == "in step")
    assert written(server) == []


COMPILED = compile_policies(
    engine(rules("{name: allowed, priorityClasses: {allow: [standard]}}")).policies, [], SETTINGS, 0.0
).objects
REGISTERED = [{"webhooks": [{"name": "pods.validate.giveway.dev"}, {"name": "probe.validate.giveway.dev"}]}]
PASSING = [
    {"webhooks": [{**one, "failurePolicy": "Ignore"} for one in REGISTERED[0]["webhooks"]]},
    {"webhooks": [{"name": "pods.mutate.giveway.dev", "failurePolicy": "Ignore"}]},
]
PROBED = [{"webhooks": [{"name": "probe.validate.giveway.dev"}, {"name": "probe.mutate.giveway.dev"}]}]


def stored():
    """The objects as an API server gives them back."""
    found = copy.deepcopy(COMPILED)
    for number, one in enumerate(found):
        one["metadata"] |= {"uid": str(number), "resourceVersion": "1", "managedFields": [{}]}
        one["status"] = {"observedGeneration": 1}
        if "variables" not in one["spec"] and one["kind"] == "ValidatingAdmissionPolicy":
            one["spec"]["variables"] = []
    return found


def test_what_the_api_server_adds_is_no_drift():
    """Its own fields, a status, empty lists."""
    assert drift(stored(), COMPILED) == []


def test_each_difference_is_named():
    """What is missing, what somebody changed, and what is left over from other policies; not what others made."""
    there = stored()
    gone = there.pop()
    there[4]["spec"]["validations"][0]["expression"] = "true"
    there[6]["spec"]["matchConstraints"]["objectSelector"] = {"matchLabels": {"nobody": ""}}
    there[-2]["spec"]["validationActions"] = ["Warn"]
    other = copy.deepcopy(there[0])
    other["metadata"]["name"] = "giveway-q-pods-enforce"
    strange = {"kind": "ValidatingAdmissionPolicy", "metadata": {"name": "somebody-else"}, "spec": {}}
    assert list(map(str, drift([*there, other, strange], COMPILED))) == [
        f"{there[4]['kind']} {there[4]['metadata']['name']} is different",
        f"{there[6]['kind']} {there[6]['metadata']['name']} is different",
        f"{there[-2]['kind']} {there[-2]['metadata']['name']} is different",
        f"{gone['kind']} {gone['metadata']['name']} is missing",
        "MutatingAdmissionPolicy giveway-q-pods-enforce is left over",
    ]


@pytest.mark.parametrize(
    ("applied", "webhooks", "found"),
    [
        ([], [], Mode.NONE),
        ([], PROBED, Mode.NONE),
        ([], REGISTERED, Mode.WEBHOOK),
        (COMPILED, REGISTERED, Mode.BOTH),
        (COMPILED, PASSING, Mode.BACKSTOP),
        (COMPILED, [PASSING[0], {"webhooks": [{"name": "pods.mutate.giveway.dev"}]}], Mode.BOTH),
        (COMPILED, PROBED, Mode.NATIVE),
        ([one for one in COMPILED if not one["kind"].endswith("Binding")], [], Mode.NONE),
    ],
    ids=["nothing", "only probed", "webhook", "both", "backstop", "one still waits", "native", "not bound"],
)
def test_who_enforces(applied, webhooks, found):
    """By the bindings and the entries that are there."""
    assert mode(applied, webhooks) == found
