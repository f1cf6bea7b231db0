"""The checks of `giveway doctor` about webhook configurations: what they find, and what they leave alone."""

import pytest

from tests.inspection.observing import (
    configuration,
    entry,
    found,
    observed,
    severities,
    summary,
)
from webhook.inspection.checks import registration, webhooks
from webhook.policy.model.policies import Policies
from webhook.registration.entries import MUTATING, VALIDATING, WebhookTarget, entries

OURS = configuration("giveway", entry("pods.mutate.giveway.dev", reinvocationPolicy="IfNeeded"))
BOTH = {"mutatingwebhookconfigurations": [OURS], "validatingwebhookconfigurations": [OURS]}


@pytest.mark.parametrize(
    ("configurations", "expected"),
    [
        pytest.param({}, [], id="not-installed"),
        pytest.param({"mutatingwebhookconfigurations": [OURS]}, ["error"], id="one-alone"),
        pytest.param({plural: [configuration("giveway")] for plural in BOTH}, ["error", "error"], id="empty"),
        pytest.param(
            {plural: [configuration("giveway", entry("probe.mutate.giveway.dev"))] for plural in BOTH},
            ["error", "error"],
            id="probes-alone",
        ),
        pytest.param(
            {
                plural: [configuration("giveway", entry("pods.x.giveway.dev", failurePolicy="Ignore"))]
                for plural in BOTH
            },
            ["info", "info"],
            id="ignore",
        ),
        pytest.param(BOTH, [], id="in-force"),
    ],
)
def test_registered(configurations, expected):
    """Both configurations are there, with entries that judge."""
    assert severities(registration.registered, observed(**configurations)) == expected


SERVICE = {"service": {"namespace": "kyverno", "name": "svc"}}
THERE = [{"metadata": {"namespace": "kyverno", "name": "svc"}}]
NOT_SYSTEM = {
    "matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "kyverno"]}
    ]
}


@pytest.mark.parametrize(
    ("fields", "services", "expected"),
    [
        pytest.param({"clientConfig": SERVICE}, [], ["error"], id="no-service"),
        pytest.param({"clientConfig": SERVICE}, THERE, ["warning"], id="its-own-pods"),
        pytest.param({"clientConfig": SERVICE, "namespaceSelector": NOT_SYSTEM}, THERE, [], id="left-out"),
        pytest.param({"clientConfig": SERVICE, "failurePolicy": "Ignore"}, [], [], id="ignore"),
        pytest.param(
            {"clientConfig": SERVICE, "objectSelector": {"matchLabels": {"a": "b"}}}, THERE, [], id="by-label"
        ),
        pytest.param({"rules": []}, [], [], id="not-about-pods"),
        pytest.param({"clientConfig": {"url": "https://x"}}, [], ["warning"], id="url-and-kube-system"),
    ],
)
def test_lock_out(fields, services, expected):
    """A webhook that fails closed has a server, and leaves out what its server needs."""
    cluster = observed(
        validatingwebhookconfigurations=[configuration("kyverno", entry(**fields))],
        services=services,
        namespaces={"team-a": {}, "kube-system": {}, "kyverno": {}},
    )
    assert severities(webhooks.locking_out, cluster) == expected


def daemon_set(namespace, **spec):
    return {"metadata": {"namespace": namespace, "name": "agent"}, "spec": {"template": {"spec": spec}}}


@pytest.mark.parametrize(
    ("spec", "looked_at"),
    [
        pytest.param({"hostNetwork": True}, True, id="of the host's network"),
        pytest.param({"tolerations": [{"operator": "Exists"}]}, True, id="tolerates all"),
        pytest.param({"tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]}, True, id="tolerates an effect"),
        pytest.param({"tolerations": [{"operator": "Exists", "key": "a"}]}, False, id="tolerates one key"),
        pytest.param({}, False, id="any other"),
    ],
)
def test_daemon_sets_that_nodes_need_lock_out(spec, looked_at):
    """A webhook that fails closed leaves out the network plugin's namespace, also giveway's own entries."""
    fields = {"clientConfig": {"url": "https://x"}, "namespaceSelector": {"matchLabels": {"judged": "yes"}}}
    cluster = observed(
        validatingwebhookconfigurations=[configuration("kyverno", entry(**fields))],
        daemonsets=[daemon_set("calico-system", **spec), daemon_set("left-out", hostNetwork=True)],
        namespaces={"kube-system": {}, "calico-system": {"judged": "yes"}, "left-out": {}},
    )
    texts = [what for _, what in found(webhooks.locking_out, cluster)]
    assert [" refuses pods in calico-system when nobody answers" in text for text in texts] == [True] * looked_at


def test_giveway_itself_locks_nobody_out():
    """The entries that giveway registers pass its own check."""
    made = entries(Policies(), WebhookTarget())
    cluster = observed(
        mutatingwebhookconfigurations=[configuration("giveway", *made[MUTATING])],
        validatingwebhookconfigurations=[configuration("giveway", *made[VALIDATING])],
        services=[{"metadata": {"namespace": "giveway-system", "name": "giveway-webhook"}}],
        namespaces={"team-a": {}, "kube-system": {}, "giveway-system": {}},
    )
    for check in (registration.registered, webhooks.locking_out, webhooks.exempting):
        assert found(check, cluster) == []


def test_exemptions():
    """Labelled namespaces are listed; many pods in them are a warning."""
    spaces = {"team-a": {}, "free": {"giveway.dev/exempt": ""}}
    there = summary("x", namespace="free")
    assert severities(webhooks.exempting, observed(summary(), there, namespaces=spaces)) == ["info"]
    assert severities(webhooks.exempting, observed(there, namespaces=spaces)) == ["warning"]
