"""Admission webhooks: which are asked, in what order, over which connection, and what their answers do."""

from __future__ import annotations

import time

import pytest

from tests.clusters.embedded.admission_chain.asking import PATHS, PODS, denying, refused, register
from tests.clusters.embedded.webhook_server import allow, patching, set_field
from tests.workloads import namespace, pod, priority_class
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.clusters.embedded.protocol.calls import ApiCall
from webhook.kube.resources import NAMESPACE, POD, PRIORITY_CLASS

CLUSTER = {"nodes": 0, "without": ("scheduler", "kubelet")}


def rule(operations: str = "CREATE", group: str = "", resources: str = "pods", **more: str):
    return {
        "operations": operations.split(),
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "resources": resources.split(),
        **more,
    }


@pytest.mark.parametrize(
    ("rules", "asked"),
    [
        pytest.param(rule(), ["pods"], id="pods"),
        pytest.param(rule(resources="*"), ["namespaces", "pods"], id="star-has-no-sub-resources"),
        pytest.param(rule(resources="pods/*"), ["pods", "pods/eviction"], id="pods-and-sub-resources"),
        pytest.param(rule(resources="*/eviction"), ["pods/eviction"], id="any-eviction"),
        pytest.param(rule(resources="*/*", scope="Namespaced"), ["pods", "pods/eviction"], id="namespaced"),
        pytest.param(rule(group="*", resources="*", scope="Cluster"), ["namespaces", "priorityclasses"], id="cluster"),
        pytest.param(rule(operations="UPDATE DELETE"), [], id="other-operations"),
        pytest.param(rule(operations="*", group="scheduling.k8s.io", resources="*"), ["priorityclasses"], id="group"),
    ],
)
async def test_rules_choose_requests(admin, server, rules, asked):
    """Operations, groups, resources with wildcards, sub-resources and scope decide who is asked."""
    await register(admin, "Validating", server.hook(rules=[rules]))
    await admin.create(NAMESPACE.path(), namespace("other"))
    await admin.create(PRIORITY_CLASS.path(), priority_class("c", 1))
    await admin.create(PODS, pod("p"))
    await admin.create(f"{PODS}/p/eviction", {"metadata": {"name": "p"}}, dryRun="All")
    seen = [
        "/".join(part for part in (one["resource"]["resource"], one.get("subResource")) if part)
        for one in server.requests
    ]
    assert sorted(seen) == sorted(asked)


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        pytest.param({"namespaceSelector": {"matchLabels": {"env": "prod"}}}, ["prod"], id="namespace-labels"),
        pytest.param(
            {"namespaceSelector": {"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]}},
            ["dev"],
            id="namespace-expression",
        ),
        pytest.param({"objectSelector": {"matchLabels": {"app": "one"}}}, ["dev", "prod"], id="object-labels"),
        pytest.param({"objectSelector": {"matchLabels": {"app": "two"}}}, [], id="other-object-labels"),
        pytest.param(
            {"matchConditions": [{"name": "in-prod", "expression": "request.namespace == 'prod'"}]},
            ["prod"],
            id="match-condition",
        ),
    ],
)
async def test_selectors_and_conditions_choose_requests(admin, server, fields, asked):
    """Namespace selector, object selector and CEL match conditions narrow who is asked."""
    await register(admin, "Validating", server.hook(**fields))
    for name in ("dev", "prod"):
        await admin.create(NAMESPACE.path(), namespace(name, env=name))
        await admin.create(POD.path(name), pod("one"))
    assert sorted(one["namespace"] for one in server.requests) == asked


async def test_condition_that_fails_refuses_or_passes_over(admin, server):
    """A match condition that cannot be evaluated follows the failure policy."""
    broken = [{"name": "broken", "expression": "object.spec.nonsense.deep == 1"}]
    await register(admin, "Validating", server.hook(matchConditions=broken))
    error = await refused(admin.create(PODS, pod("p")))
    assert error.status == 403
    assert "broken" in error.message
    await admin.delete(f"{PATHS['Validating']}/test")
    await register(admin, "Validating", server.hook(matchConditions=broken, failurePolicy="Ignore"))
    await admin.create(PODS, pod("p"))
    assert server.requests == []


async def test_webhook_configurations_are_never_asked_about(admin, server):
    """A webhook cannot lock anyone out of the webhook configurations."""
    server.answer = denying()
    everything = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
    await register(admin, "Validating", server.hook(rules=[everything]))
    await refused(admin.create(PODS, pod("p")))
    await admin.delete(f"{PATHS['Validating']}/test")
    made = await admin.create(PODS, pod("p"))
    assert made["metadata"]["name"] == "p"
    assert {request["resource"]["resource"] for request in server.requests} == {"pods"}


async def test_mutating_webhooks_run_by_configuration_name_each_on_the_last_ones_output(admin, server, another):
    """Patches add up, configurations go by name, and the stored object has them all."""
    server.answer = patching(set_field("/metadata/annotations", {"first": "1"}))
    another.answer = patching(set_field("/metadata/annotations/second", "2"))
    await register(admin, "Mutating", another.hook("second.example.com"), name="b")
    await register(admin, "Mutating", server.hook("first.example.com"), name="a")
    made = await admin.create(PODS, pod("p"))
    assert another.requests[0]["object"]["metadata"]["annotations"] == {"first": "1"}
    assert made["metadata"]["annotations"] == {"first": "1", "second": "2"}


async def test_earlier_webhook_is_called_again_only_if_it_wants_to_be(admin, server, another):
    """IfNeeded gets the object once more after a later webhook changed it; Never does not."""
    another.answer = patching(set_field("/metadata/labels/late", "yes"))
    hooks = [
        server.hook("again.example.com", path="/again", reinvocationPolicy="IfNeeded"),
        server.hook("once.example.com", path="/once"),
        another.hook("later.example.com"),
    ]
    await register(admin, "Mutating", *hooks)
    await admin.create(PODS, pod("p"))
    assert len(another.reviews) == 1
    assert len(server.reviews) == 3
    assert server.requests[2]["object"]["metadata"]["labels"]["late"] == "yes"


@pytest.mark.skipped_waits
async def test_validating_webhooks_are_asked_side_by_side(admin, server):
    """Three slow validating webhooks take the time of one, and see the final object."""
    server.delay = 0.4
    hooks = [server.hook(f"h{number}.example.com", path="/validate") for number in range(3)]
    await register(admin, "Validating", *hooks)
    started = time.monotonic()
    await admin.create(PODS, pod("p"))
    assert time.monotonic() - started < 1.0
    assert len(server.requests) == 3
    assert server.requests[0]["object"]["metadata"]["uid"]


async def test_answers_of_validating_webhooks_change_nothing(admin, server):
    """A patch from a validating webhook is not applied."""
    server.answer = patching(set_field("/metadata/labels/late", "yes"))
    await register(admin, "Validating", server.hook())
    made = await admin.create(PODS, pod("p"))
    assert "late" not in made["metadata"]["labels"]


async def test_dry_run_asks_only_webhooks_without_side_effects(admin, server):
    """A dry run reaches webhooks that declare no side effects and is refused for others."""
    await register(admin, "Validating", server.hook())
    await admin.create(PODS, pod("p"), dryRun="All")
    assert server.requests[0]["dryRun"] is True
    await admin.delete(f"{PATHS['Validating']}/test")
    await register(admin, "Validating", server.hook(sideEffects="Some"))
    error = await refused(admin.create(PODS, pod("p"), dryRun="All"))
    assert (error.status, error.message) == (
        400,
        'admission webhook "hook.example.com" does not support dry run',
    )
    await admin.create(PODS, pod("p"))


async def test_warnings_become_headers(cluster, admin, server):
    """What a webhook warns of arrives as Warning headers, also where it allows."""
    server.answer = lambda _: {"allowed": True, "warnings": ["mind the step", 'say "please"']}
    await register(admin, "Mutating", server.hook())
    body = b'{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"nginx"}]}}'
    reply = await cluster.api.handle(ApiCall("POST", PODS, {}, {"content-type": "application/json"}, body))
    warnings = [value for name, value in reply.headers if name == "Warning"]
    assert warnings == ['299 - "mind the step"', '299 - "say \\"please\\""']


async def test_delete_may_be_refused_and_not_patched(admin, server):
    """DELETE is asked about with the old object; a patch to nothing is the webhook's error."""
    await admin.create(PODS, pod("p"))
    await register(admin, "Mutating", server.hook(rules=[rule("DELETE")]))
    server.answer = denying({"message": "keep it"})
    assert "keep it" in (await refused(admin.delete(f"{PODS}/p"))).message
    assert server.requests[0]["object"] is None
    server.answer = patching(set_field("/metadata/labels/late", "yes"))
    assert "attempted to modify the object" in (await refused(admin.delete(f"{PODS}/p"))).message
    server.answer = allow
    await admin.delete(f"{PODS}/p")


@pytest.mark.parametrize("plugin", ["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"])
async def test_disabled_webhook_plugin_asks_nobody(server, plugin):
    """`--disable-admission-plugins` silences one kind of webhook."""
    server.answer = denying()
    async with EmbeddedCluster(nodes=0, without=("scheduler", "kubelet"), disabled_plugins=(plugin,)) as cluster:
        admin = cluster.api.local()
        await register(admin, plugin.removesuffix("AdmissionWebhook"), server.hook())
        await admin.create(PODS, pod("p"))
        assert server.requests == []
        other = {"Mutating": "Validating", "Validating": "Mutating"}[plugin.removesuffix("AdmissionWebhook")]
        await register(admin, other, server.hook())
        await refused(admin.create(PODS, pod("q")))
    assert len(server.requests) == 1, "the other kind is asked as ever"
