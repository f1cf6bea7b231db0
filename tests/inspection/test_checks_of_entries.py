"""What `giveway doctor` says of webhook entries that an administrator applied from a file."""

import pytest

from tests.inspection.observing import found, observed
from webhook.inspection.checks.registration import old
from webhook.inspection.observed import OwnState
from webhook.policy.files.loading import load_texts
from webhook.policy.model.policies import Policies
from webhook.registration import stored
from webhook.registration.entries import MUTATING, VALIDATING, WebhookTarget, entries

POLICY = """\
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {name: teams}
spec:
  rules:
  - {name: kept, protectAnnotations: {keys: [example.com/kept]}}
"""
PLURALS = {MUTATING: "mutatingwebhookconfigurations", VALIDATING: "validatingwebhookconfigurations"}
SHIPPED = WebhookTarget()


STATIC = OwnState(
    deployments={
        "giveway-webhook": {"spec": {"template": {"spec": {"containers": [{"args": ["serve", "--entries=static"]}]}}}}
    }
)


def applied(policies, target=SHIPPED):
    """The configurations as `giveway compile --webhook` prints them."""
    return {
        PLURALS[kind]: [{"metadata": {"name": "giveway"}, "webhooks": webhooks}]
        for kind, webhooks in entries(policies, target).items()
    }


def said(policies, configurations, own=None):
    """What the check finds in a cluster with these policies in force."""
    cluster = observed(**configurations, **({"own_state": own} if own else {}))
    cluster.policies = policies
    return found(old, cluster)


def policies(text=POLICY):
    loaded = load_texts([("p.yaml", text)])
    assert not loaded.errors
    return loaded.policies


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(WebhookTarget(), id="as-shipped"),
        pytest.param(WebhookTarget(failure_policy="Ignore", priority_plugin=False), id="open-and-without-the-plugin"),
        pytest.param(WebhookTarget(service="other", port=8443, reconciler="o'neil\\x"), id="names"),
        pytest.param(WebhookTarget(url="https://giveway.example:9443/base"), id="url"),
    ],
)
def test_entries_that_fit(target):
    """What `giveway compile --webhook` prints is right whatever its options; after the policies change it is old."""
    stored_ones = applied(policies(), target)
    assert said(policies(), stored_ones) == []
    [(severity, what)] = said(policies(POLICY.replace("/kept]", "/other]")), stored_ones)
    assert severity == "warning"
    assert "ValidatingWebhookConfiguration giveway is not what the policies in force need" in what
    assert "pods.validate.giveway.dev" in what


def test_entries_that_a_replica_keeps():
    """Its own are not looked at, those that somebody changed by hand are; an empty configuration is another check's."""
    [one] = applied(policies())[PLURALS[VALIDATING]]
    kept = stored.with_entries(one, entries(Policies(), WebhookTarget())[VALIDATING], str)
    both = applied(policies()) | {PLURALS[VALIDATING]: [kept]}
    assert said(policies(), both) == []
    kept["webhooks"] = kept["webhooks"][1:]
    [(_, what)] = said(policies(), both)
    assert "pods.validate.giveway.dev" in what
    for nothing in ([stored.emptied(kept)], []):
        both[PLURALS[VALIDATING]] = nothing
        assert said(policies(), both) == []


def test_entries_of_a_static_installation():
    """Nobody renews what a replica wrote before an administrator took over: it is right, or old."""
    [one] = applied(policies())[PLURALS[VALIDATING]]
    kept = stored.with_entries(one, entries(policies(), SHIPPED)[VALIDATING], str)
    both = applied(policies()) | {PLURALS[VALIDATING]: [kept]}
    assert said(policies(), both, STATIC) == []
    [(_, what)] = said(policies(POLICY.replace("/kept]", "/other]")), both, STATIC)
    assert "is not what the policies in force need" in what
