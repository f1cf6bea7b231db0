"""The keeper against an API server that is only a dictionary: what it writes, when, and what it leaves alone."""

import asyncio
import base64
import copy
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.policy.builders import engine, rules, table
from tests.workloads import eventually as until
from webhook.admission.configmaps import answers
from webhook.kube.errors import ApiError
from webhook.policy.evaluation.engine import Engine
from webhook.policy.model.policies import Policies
from webhook.registration import keeper as keepers
from webhook.registration import stored
from webhook.registration.entries import MUTATING, PROBES, VALIDATING, WebhookTarget, entries
from webhook.registration.keeper import Keeper

pytestmark = pytest.mark.skipped_waits

PREFIX = "/apis/admissionregistration.k8s.io/v1/"
PATHS = {
    MUTATING: f"{PREFIX}mutatingwebhookconfigurations/giveway",
    VALIDATING: f"{PREFIX}validatingwebhookconfigurations/giveway",
}
DEPLOYMENT = "/apis/apps/v1/namespaces/giveway-system/deployments/giveway-webhook"
PEM, BUNDLE = b"authority", base64.b64encode(b"authority").decode()
NONE, LABELS = Engine(Policies()), engine(rules("{name: v, validate: {expression: 'size(object.metadata) < 9'}}"))
TARGET = WebhookTarget()


class FakeApi:
    """Objects by path with conflicts; `reached` says whether a dry-run change is answered by webhooks."""

    def __init__(self):
        self.objects = {path: {"metadata": {"name": "giveway", "resourceVersion": "1"}} for path in PATHS.values()}
        self.objects[DEPLOYMENT] = {"metadata": {"name": "giveway-webhook"}, "spec": {"replicas": 2}}
        self.reached, self.writes, self.failing, self.unknown = True, [], [], []

    async def get(self, path):
        self._fail("get", path)
        if path not in self.objects:
            raise ApiError(404, "NotFound", path)
        return copy.deepcopy(self.objects[path])

    async def replace(self, path, body):
        self._fail("replace", path)
        current = self.objects[path]["metadata"]["resourceVersion"]
        if body["metadata"]["resourceVersion"] != current:
            raise ApiError(409, "Conflict", path)
        self.objects[path] = copy.deepcopy(body)
        for entry in self.webhooks(path):
            for field in self.unknown:
                entry.pop(field, None)
        self.objects[path]["metadata"]["resourceVersion"] = str(int(current) + 1)
        self.writes.append((path, [entry["name"] for entry in body["webhooks"]]))
        return copy.deepcopy(self.objects[path])

    async def patch(self, path, body, *, warnings=None, **query):
        assert (path, query) == ("/api/v1/namespaces/giveway-system/configmaps/giveway-probe", {"dryRun": "All"})
        self._fail("patch", path)
        probed = {entry["name"] for found in PATHS.values() for entry in self.webhooks(found)}
        if self.reached and probed >= PROBES:
            warnings += [answers("mutate"), "something else", answers("validate")]
        return {}

    def webhooks(self, path):
        return self.objects.get(path, {}).get("webhooks") or []

    def bundles(self):
        return {entry["clientConfig"]["caBundle"] for path in PATHS.values() for entry in self.webhooks(path)}

    def names(self):
        return [len(self.webhooks(path)) for path in PATHS.values()]

    def _fail(self, verb, path):
        for row in self.failing:
            if row[0] == verb and row[1] in path:
                self.failing.remove(row)
                raise row[2]


def a_server():
    """What a keeper asks of its server."""
    return SimpleNamespace(ready=True, trust=PEM, terminating=False)


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Looks come every 20 ms, and other replicas are left alone for 0.4 s."""
    monkeypatch.setattr(keepers, "_PERIOD", 0.02)
    monkeypatch.setattr(keepers, "_PATIENCE", 0.4)


@asynccontextmanager
async def keeping(api, server=None, target=TARGET, policies=NONE, **settings):
    server = server or a_server()
    keeper = Keeper(
        api,
        target,
        ready=lambda: server.ready,
        trust=lambda: server.trust or Path("missing/ca.crt").read_bytes(),
        terminating=lambda: server.terminating,
        **{"deployment": "giveway-webhook", **settings},
    )
    keeper.use(policies)
    [work] = keeper.tasks().values()
    task = asyncio.create_task(work())
    try:
        yield keeper
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def complete(api, engine=NONE, target=TARGET):
    wanted = entries(engine.policies, target)
    return all(stored.digest(api.webhooks(path)) == stored.digest(wanted[kind]) for kind, path in PATHS.items())


def defaulted(api):
    """Fill in and drop what a real API server fills in and drops."""
    for path in PATHS.values():
        for entry in api.objects[path]["webhooks"]:
            entry |= {"futureField": "Default"}
            for field in [field for field in ("matchConditions", "objectSelector") if not entry[field]]:
                del entry[field]
            entry["rules"] = [{**rule, "scope": rule["scope"]} for rule in entry["rules"]]


async def settle(seconds=0.1):
    """Several periods in which nothing ought to happen: there is no event to wait for."""
    await asyncio.sleep(seconds)


async def test_first_the_probe_then_the_rest():
    """What could refuse a pod is written after a review came through, and once."""
    api = FakeApi()
    async with keeping(api) as keeper:
        await until(lambda: complete(api))
        await settle()
        written = [(path, set(names) == {name for name in names if name in PROBES}) for path, names in api.writes]
        assert written == [(path, probing) for probing in (True, False) for path in PATHS.values()]
        assert (keeper.note, keeper.in_force) == ("in force", True)
    assert api.bundles() == {BUNDLE}


@pytest.mark.parametrize("obstacle", ["unready", "unreached", "no-probe"])
async def test_nothing_that_refuses_before_a_review_comes_through(obstacle):
    """A server that is not ready writes nothing; one that is not reached writes what probes."""
    api, server = FakeApi(), a_server()
    server.ready, api.reached = obstacle != "unready", obstacle != "unreached"
    if obstacle == "no-probe":
        api.failing = [("patch", "", ApiError(404, "NotFound", "no ConfigMap"))] * 1000
    async with keeping(api, server) as keeper:
        await until(lambda: obstacle == "unready" or api.names() == [1, 1])
        await settle()
        assert api.names() == ([0, 0] if obstacle == "unready" else [1, 1])
        assert len(api.writes) <= 2
        if obstacle != "unready":
            assert (keeper.note[:9], keeper.in_force) == ("waiting: ", False)
        server.ready, api.reached, api.failing = True, True, []
        await until(lambda: complete(api))


async def test_what_the_api_server_fills_in_is_no_difference():
    """Defaults, fields of newer versions and dropped empty fields lead to no write, and stay."""
    api = FakeApi()
    async with keeping(api):
        await until(lambda: complete(api))
        defaulted(api)
        before = len(api.writes)
        await settle()
        assert len(api.writes) == before


async def test_an_api_server_that_drops_fields_is_not_written_to_for_ever(caplog):
    """One that does not know matchConditions keeps something else; that is said once, and left so."""
    api = FakeApi()
    api.unknown = ["matchConditions"]
    async with keeping(api):
        await until(lambda: min(api.names()) > 1)
        before = len(api.writes)
        await settle()
        assert len(api.writes) == before
        del api.objects[PATHS[MUTATING]]["webhooks"][0]
        await until(lambda: len(api.webhooks(PATHS[MUTATING])) == len(entries(Policies(), WebhookTarget())[MUTATING]))
    assert caplog.text.count("needs Kubernetes 1.30") == len(PATHS)


@table(
    "change",
    {
        "emptied": lambda hooks: hooks.clear(),
        "one-gone": lambda hooks: hooks.pop(),
        "opened": lambda hooks: hooks[0].update(failurePolicy="Ignore"),
        "narrowed": lambda hooks: hooks[0].update(objectSelector={"matchLabels": {"a": "b"}}),
        "cel": lambda hooks: hooks[0].update(matchConditions=[{"name": "x", "expression": "false"}]),
        "rule": lambda hooks: hooks[0]["rules"][0].update(operations=["DELETE"]),
        "trust": lambda hooks: hooks[0]["clientConfig"].pop("caBundle"),
        "one-too-many": lambda hooks: hooks.append({**hooks[0], "name": "x.y.z"}),
    },
)
@pytest.mark.parametrize("kind", PATHS)
async def test_what_somebody_changes_is_put_back(kind, change, monkeypatch):
    """At once, without the patience that other replicas are shown, and with the same trust."""
    api = FakeApi()
    monkeypatch.setattr(keepers, "_PATIENCE", 1000)
    async with keeping(api):
        await until(lambda: complete(api))
        before = copy.deepcopy(api.webhooks(PATHS[kind]))
        change(api.objects[PATHS[kind]]["webhooks"])
        await until(lambda: api.webhooks(PATHS[kind]) == before)


async def test_trust_belongs_to_whoever_renews_it():
    """A `caBundle` that somebody renewed stays through every rewriting, and new entries get it, too."""
    api = FakeApi()
    async with keeping(api) as keeper:
        await until(lambda: complete(api))
        for path in PATHS.values():
            for entry in api.objects[path]["webhooks"]:
                entry["clientConfig"]["caBundle"] = "renewed"
        del api.objects[PATHS[VALIDATING]]["webhooks"][2]
        keeper.use(LABELS)
        await until(lambda: complete(api, LABELS))
    assert api.bundles() == {"renewed"}


@table(
    "settings",
    {
        "url": {"target": WebhookTarget(url="https://10.0.0.1:9443")},
        "told-so": {"target": TARGET, "owns_trust": True},
    },
)
async def test_where_nobody_else_renews_it_the_file_is_what_is_trusted(settings):
    """A webhook outside the cluster, or certificates from elsewhere: every entry follows the file."""
    api, server, target = FakeApi(), a_server(), settings["target"]
    async with keeping(api, server, **settings):
        await until(lambda: complete(api, target=target))
        server.trust = b"next"
        await until(lambda: api.bundles() == {base64.b64encode(b"next").decode()})
    assert complete(api, target=target)


async def test_a_write_that_meets_another_is_tried_again():
    """Certificates may be renewed between reading and writing."""
    api = FakeApi()
    api.failing = [("replace", "mutating", ApiError(409, "Conflict", "x")), ("get", "", ApiError(500, "x", "y"))]
    async with keeping(api):
        await until(lambda: complete(api))


async def test_an_authority_that_cannot_be_read_is_waited_for():
    """A file that is not there is said, and tried again; the server goes on."""
    api, server = FakeApi(), a_server()
    server.trust = None
    async with keeping(api, server) as keeper:
        await until(lambda: "ca.crt" in keeper.note)
        server.trust = PEM
        await until(lambda: complete(api))


async def test_new_policies_are_written_at_once(monkeypatch):
    """The period need not pass."""
    api = FakeApi()
    monkeypatch.setattr(keepers, "_PERIOD", 1000)
    async with keeping(api) as keeper:
        await until(lambda: complete(api))
        keeper.use(LABELS)
        await until(lambda: complete(api, LABELS))


async def test_replicas_that_differ_take_turns():
    """Of another version, or with older policies: each leaves the other's entries alone for the patience."""
    api = FakeApi()
    async with keeping(api):
        await until(lambda: complete(api))
        async with keeping(api, policies=LABELS):
            await until(lambda: complete(api, LABELS))
            before = len(api.writes)
            await settle(1.0)
            assert len(api.writes) - before <= 2 * 4  # at most every 0.4 s, the probes' entries included
        await until(lambda: complete(api))  # alone again, the older one's entries hold in the end


async def test_without_objects_nothing_is_made():
    """The keeper makes no configuration; one that appears is filled in."""
    api = FakeApi()
    made = {path: api.objects.pop(path) for path in PATHS.values()}
    async with keeping(api) as keeper:
        await until(lambda: "nothing is sent" in keeper.note)
        assert api.writes == []
        api.objects |= made
        await until(lambda: complete(api))


@table(
    "deployment, removed",
    {
        "rollout": ({"metadata": {}, "spec": {"replicas": 2}}, False),
        "one-replica-less": ({"metadata": {}, "spec": {"replicas": 1}}, False),
        "replicas-by-default": ({"metadata": {}, "spec": {}}, False),
        "scaled-to-nothing": ({"metadata": {}, "spec": {"replicas": 0}}, True),
        "being-deleted": ({"metadata": {"deletionTimestamp": "x"}, "spec": {"replicas": 2}}, True),
        "gone": (None, True),
    },
)
async def test_the_last_thing_a_server_does(deployment, removed):
    """It empties the configurations if nobody follows it, and only then."""
    api = FakeApi()
    async with keeping(api) as keeper:
        await until(lambda: complete(api))
        api.objects.pop(DEPLOYMENT)
        api.objects |= {DEPLOYMENT: deployment} if deployment else {}
        api.failing = [("replace", "validating", ApiError(409, "Conflict", "x"))]
        await keeper.drain()
        assert (api.names() == [0, 0]) is removed
        assert keeper.in_force is not removed
        before = len(api.writes)
        await settle()
        assert len(api.writes) == before
    if removed:
        assert not any(stored.WRITTEN in api.objects[path]["metadata"]["annotations"] for path in PATHS.values())


async def test_not_knowing_is_no_removal():
    """A server that may not look, or has no Deployment, leaves what is there."""
    for settings, failing in (
        ({"deployment": None}, []),
        ({}, [("get", "deployments", ApiError(403, "Forbidden", ""))]),
    ):
        api = FakeApi()
        del api.objects[DEPLOYMENT]
        async with keeping(api, **settings) as keeper:
            await until(lambda api=api: complete(api))
            api.failing = failing
            await keeper.drain()
        assert complete(api)


async def test_a_namespace_that_goes_takes_the_entries_along(monkeypatch):
    """No signal is waited for, and nothing is written again."""
    api, server = FakeApi(), a_server()
    monkeypatch.setattr(keepers, "_PERIOD", 1000)
    async with keeping(api, server) as keeper:
        await until(lambda: complete(api))
        server.terminating = True
        keeper.wake()
        await until(lambda: api.names() == [0, 0])
        keeper.wake()
        await settle()
        assert api.names() == [0, 0]


async def test_policies_that_cannot_be_read_leave_the_entries_as_they_are():
    """The keeper says what raised, and keeps the entries again as soon as it can."""
    api = FakeApi()
    async with keeping(api) as keeper:
        await until(lambda: keeper.in_force)
        written = len(api.writes)
        keeper.use(SimpleNamespace(policies=None))
        await until(lambda: "cannot be kept: AttributeError" in keeper.note)
        assert len(api.writes) == written
        keeper.use(LABELS)
        await until(lambda: complete(api, LABELS))


async def test_static_entries_are_only_looked_at():
    """A server without rights on configurations says whether reviews come through, and that they stay when it goes."""
    api = FakeApi()
    api.reached = False
    api.failing = [("get", PREFIX, ApiError(403, "Forbidden", "")), *[("patch", "", ApiError(0, "", ""))] * 1000]
    async with keeping(api, static=True) as keeper:
        await until(lambda: "cannot be probed with" in keeper.note)
        del api.failing[1:]
        await until(lambda: "apply what giveway compile --webhook prints" in keeper.note)
        assert not keeper.in_force
        wanted = entries(Policies(), WebhookTarget())
        for kind, path in PATHS.items():
            api.objects[path]["webhooks"] = wanted[kind]
        api.reached = True
        await until(lambda: keeper.in_force)
        assert keeper.note == "in force, as an administrator applied them"
        api.objects[DEPLOYMENT]["spec"]["replicas"] = 0
        await keeper.drain()
        assert "its entries stay" in keeper.note
    assert (api.writes, len(api.failing)) == ([], 1)
