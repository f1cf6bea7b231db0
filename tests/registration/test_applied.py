"""Entries that an administrator applied, as a server without rights on configurations finds them."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from tests.policy.builders import engine, rules
from tests.workloads import eventually as until
from webhook.admission.configmaps import PROBE, answers
from webhook.clusters.embedded.admission_chain.registered_webhooks import conditions_hold
from webhook.kube.errors import ApiError
from webhook.policy.model.policies import Policies
from webhook.registration.applied import AppliedEntries, applied_entries, is_applied, needed
from webhook.registration.entries import MUTATING, PROBES, VALIDATING, WebhookTarget, entries
from webhook.registration.keeper import KeeperSettings, ServerState

pytestmark = pytest.mark.skipped_waits

OTHERS = engine(rules("{name: v, validate: {expression: 'size(object.metadata.labels) < 9'}}")).policies
TARGET = WebhookTarget(namespace="policy", failure_policy="Ignore", priority_plugin=False)
PHASES = {MUTATING: "mutate", VALIDATING: "validate"}


class Api:
    """An API server with these entries that only knows the probe; whoever looks may do nothing else."""

    def __init__(self, entries):
        self.entries, self.down, self.replicas = entries, False, 2

    async def get(self, path):
        assert path == "/apis/apps/v1/namespaces/policy/deployments/giveway-webhook"
        return {"metadata": {}, "spec": {"replicas": self.replicas}}

    async def patch(self, path, body, *, warnings=None, **query):
        assert (path, query) == (f"/api/v1/namespaces/policy/configmaps/{PROBE}", {"dryRun": "All"})
        if self.down:
            raise ApiError(0, "", "away")
        request = {"operation": "UPDATE", "name": PROBE, "dryRun": True, "object": body, "oldObject": {}}
        for kind, found in self.entries.items():
            for entry in found:
                conditions = [(one["name"], one["expression"]) for one in entry["matchConditions"]]
                if entry["name"] in PROBES and conditions_hold(conditions, request):
                    warnings.append(answers(PHASES[kind]))
        return {}


@asynccontextmanager
async def looking(api, policies=Policies, ready=lambda: True):
    settings = KeeperSettings(target=TARGET, period=0.05, deployment="giveway-webhook")
    state = ServerState(policies=policies, ready=ready, trust=bytes, terminating=bool)
    found = AppliedEntries(api, settings, state)
    task = asyncio.create_task(found.run())
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_entries_that_fit_the_policies():
    """Wherever they lead and whatever their options are, they are in force and not old."""
    async with looking(Api(applied_entries(Policies(), TARGET))) as found:
        await until(lambda: found.in_force)
        assert (found.old, found.note) == (False, "in force, as an administrator applied them")


async def test_policies_that_need_other_entries(caplog):
    """The server says so once, and again nothing when the entries are made again."""
    policies = [Policies()]
    api = Api(applied_entries(Policies(), TARGET))
    async with looking(api, lambda: policies[0]) as found:
        await until(lambda: found.in_force)
        policies[0] = OTHERS
        found.wake()
        await until(lambda: found.old)
        assert found.in_force
        assert "make them again with giveway compile --webhook" in found.note
        await asyncio.sleep(0.3)
        assert len([row for row in caplog.records if "make them again" in row.message]) == 1
        api.entries = applied_entries(OTHERS, TARGET)
        await until(lambda: not found.old)
        # One of the two alone is not enough
        api.entries = {**api.entries, VALIDATING: applied_entries(Policies(), TARGET)[VALIDATING]}
        await until(lambda: found.old)


async def test_entries_that_are_not_there():
    """Missing, taken away, or leading elsewhere: nothing is in force."""
    api = Api({})
    async with looking(api) as found:
        await until(lambda: "nobody has applied" in found.note)
        assert not found.in_force
        api.entries = applied_entries(Policies(), TARGET)
        await until(lambda: found.in_force)
        api.entries = {MUTATING: api.entries[MUTATING]}
        await until(lambda: not found.in_force)
        assert "(validate)" in found.note
        api.down = True
        await until(lambda: "cannot be probed with" in found.note)


async def test_a_server_that_is_not_ready_asks_nothing():
    """Its own answer would be no verdict."""
    async with looking(Api(applied_entries(Policies(), TARGET)), ready=lambda: False) as found:
        await asyncio.sleep(0.3)
        assert found.note == "not looked at yet"


async def test_a_removal_leaves_the_entries_and_says_so(caplog):
    """The server may not take them away; a rollout says nothing."""
    api = Api(applied_entries(Policies(), TARGET))
    async with looking(api) as found:
        await until(lambda: found.in_force)
        await found.end()
        assert not [row for row in caplog.records if "entries stay" in row.message]
        api.replicas = 0
        await found.end()
        assert [row for row in caplog.records if "entries stay" in row.message]


def test_what_to_apply_is_what_a_server_would_keep():
    """But for the digest in the entries that probe, by which they are told apart from those that a server keeps."""
    kept, to_apply = entries(OTHERS, TARGET), applied_entries(OTHERS, TARGET)
    for kind, found in to_apply.items():
        assert [one for one in found if one["name"] not in PROBES] == [
            one for one in kept[kind] if one["name"] not in PROBES
        ]
        assert is_applied(found)
        assert not is_applied(kept[kind])
    assert needed(OTHERS) != needed(Policies())
