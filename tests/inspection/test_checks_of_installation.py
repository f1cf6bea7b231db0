"""The checks of `giveway doctor` about giveway's own parts: what they find, and what they say is to be done."""

import pytest

from tests.admission.builders import make_class, manage
from tests.cases import cases
from tests.inspection.observing import AS_STATIC, NOW, configuration, entry, finds, observed
from tests.manifests.rendering import rendered, rules_of
from webhook.inspection.checks import alive, policies, rights
from webhook.inspection.observed import CONFIGURATIONS, OwnState, PolicyMap
from webhook.kube.instants import rfc3339
from webhook.kube.lease import Lease, LeaseSpec
from webhook.kube.objects.meta import ObjectMeta
from webhook.registration.probe import Probe

SERVICE = {"service": {"namespace": "giveway-system", "name": "giveway-webhook"}}


def registered(**fields):
    """Both configurations with an entry that judges pods."""
    one = configuration("giveway", entry("pods.validate.giveway.dev", **{"clientConfig": SERVICE, **fields}))
    return {"mutatingwebhookconfigurations": [one], "validatingwebhookconfigurations": [one]}


def deployment(name, *, ready=2, wanted=2):
    status = {"updatedReplicas": wanted, "availableReplicas": ready}
    spec = {"replicas": wanted, "selector": {"matchLabels": {"app": name}}}
    return {name: {"metadata": {"name": name}, "spec": spec, "status": status}}


RUNS = deployment("giveway-webhook") | deployment("giveway-reconciler")
HELD = {"name": "webhook", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}


BUT = {"pods": [{"metadata": {"labels": {"app": "giveway-webhook"}}, "status": {"containerStatuses": [HELD]}}]}


test_deployments = finds(
    "Each Deployment that does not run as it is wanted is named, with what its pods say.",
    alive.deployed,
    ("runs", RUNS, ""),
    (
        "gone",
        deployment("giveway-reconciler"),
        "error: There is no Deployment giveway-system/giveway-webhook, and the webhook configurations lead to*",
    ),
    (
        "never came up",
        RUNS | deployment("giveway-webhook", ready=0),
        "error: Deployment giveway-webhook: 0 of 2 pods are ready (container webhook: ImagePullBackOff: no*",
    ),
    (
        "one is left",
        RUNS | deployment("giveway-reconciler", ready=1),
        "warning: Deployment giveway-reconciler: 1 of 2 pods are ready.",
    ),
    (
        "scaled to nothing",
        RUNS | deployment("giveway-reconciler", ready=0, wanted=0),
        "warning: Deployment giveway-reconciler is scaled to 0 replicas.",
    ),
    given=lambda deployments: observed(own_state=OwnState(deployments=deployments, **BUT), **registered()),
)


@pytest.mark.parametrize(
    ("failure", "deployments", "fix"),
    cases(
        ("no-endpoints", 'no endpoints available for service "giveway-webhook"', RUNS, "none is ready"),
        (
            "dead",
            "dial tcp 10.0.0.1:443: connect: connection refused",
            deployment("giveway-webhook", ready=0),
            "giveway-webhook: 0 of 2 pods are ready",
        ),
        ("closed-port", "context deadline exceeded", RUNS, "TCP port 9443 of the webhook's pods"),
        ("timeout", "dial tcp 10.0.0.1:443: i/o timeout", RUNS, "TCP port 9443"),
        ("no-service", 'service "giveway-webhook" not found', RUNS, "The Service is gone"),
        (
            "expired",
            "tls: failed to verify certificate: x509: certificate has expired or is not yet valid",
            RUNS,
            "rollout restart deployment giveway-webhook has a new one issued",
        ),
        (
            "another-authority",
            "x509: certificate signed by unknown authority",
            RUNS,
            "rollout restart deployment giveway-webhook writes it again",
        ),
        ("else", "an error on the server", RUNS, "logs deploy/giveway-webhook"),
    ),
)
def test_why_nobody_answers(failure, deployments, fix):
    """The API server's words are quoted, and the fix fits them and the state of the Deployment."""
    probe = Probe(("mutate", "validate"), "priorityclasses.mutate.giveway.dev", failure)
    cluster = observed(own_state=OwnState(deployments=deployments, probe=probe), **registered())
    [one] = alive.silent(cluster)
    assert (one.severity, failure in one.what, fix in one.fix) == ("error", True, True), one
    assert "giveway.dev/exempt=" in one.fix


def test_an_answer_that_is_missing_and_refuses_nobody():
    """Entries that fail open let pods pass unjudged, and the API server says no reason."""
    probe = Probe(("mutate", "validate"))
    cluster = observed(own_state=OwnState(deployments=RUNS, probe=probe), **registered(failurePolicy="Ignore"))
    [one] = alive.silent(cluster)
    assert "made unjudged" in one.why
    assert "exempt" not in one.fix
    assert not list(alive.silent(observed(own_state=OwnState(probe=Probe()), **registered())))


def lease(holder="r-1", age=0.0):
    spec = LeaseSpec(holder_identity=holder, lease_duration_seconds=15, renew_time=rfc3339(NOW - age))
    return Lease(metadata=ObjectMeta(name="giveway-reconciler"), spec=spec)


MANAGED = make_class("giveway-online", 1000, never=True)


test_leader = finds(
    "Somebody leads if the lease is renewed, whatever the clocks say.",
    alive.led,
    ("leads", {"deployments": RUNS, "lease": lease()}, ""),
    ("another clock", {"deployments": RUNS, "lease": lease(age=90)}, ""),
    (
        "old",
        {"deployments": RUNS, "lease": lease(age=600), "lease_unchanged": True},
        "error: *for the last time 10 min ago.",
    ),
    ("not held", {"deployments": RUNS, "lease": lease("")}, "error: *nobody holds Lease*"),
    ("never", {"deployments": RUNS}, "error: No reconciler has led yet*"),
    ("webhook alone", {}, "warning: No reconciler has ever run here, and the policies manage 1 PriorityClass."),
    given=lambda own: observed(MANAGED, manage("giveway-*"), own_state=OwnState(**own), **registered()),
)


POLICY = (
    "apiVersion: giveway.dev/v1alpha1\nkind: PriorityPolicy\nmetadata: {name: p}\nspec:\n  rules:\n"
    "  - {name: r, priorityClasses: {deny: [x]}}\n"
)
SOFTER = POLICY.replace("name: r", "name: r, enforcement: warn")


def maps(applied, in_force=POLICY, *, by_hand=False, deployments=RUNS, **fields):
    """Policies that were applied at NOW, and those in force, written before or, by hand, afterwards."""
    kept = PolicyMap({"p.yaml": in_force}, written=NOW + 60 if by_hand else NOW - 60)
    applied = PolicyMap({"p.yaml": applied}, written=NOW, **fields)
    return OwnState(applied=applied, in_force=kept, deployments=deployments)


MEANT = {"allowed": ("p/r",)}


test_policies_in_force = finds(
    "What was applied is in force, or it is said why not: what was softened by hand is put back, and told until then."
    " A webhook outside the cluster reads a directory of its own.",
    policies.differing,
    ("the same", maps(POLICY), ""),
    ("broken", maps(POLICY.replace("deny", "denny")), "error: *"),
    ("held", maps(SOFTER), "warning: A change of *is held back*"),
    ("allowed and under way", maps(SOFTER, **MEANT), "info: *"),
    ("under way", maps(POLICY.replace("[x]", "[x, y]")), "info: *"),
    (
        "less than applied",
        maps(POLICY, SOFTER, by_hand=True),
        "warning: *-policies-in-force) give less protection than ConfigMap giveway-system/giveway-policies: *p/r*",
    ),
    ("less, and meant", maps(POLICY, SOFTER, by_hand=True, **MEANT), "info: *"),
    ("outside the cluster", maps(SOFTER, deployments={}, **MEANT), "warning: *"),
    ("nothing kept", OwnState(applied=maps(POLICY).applied, deployments=RUNS), ""),
    given=lambda own: observed(own_state=own),
)


def rbac(without=()):
    """The RBAC objects of the base by plural, without the rules about some resources."""
    objects: dict = {}
    for (_, kind, _, name), obj in rendered().items():
        if "Role" in kind:
            if "rules" in obj and name == "giveway-webhook":
                obj["rules"] = [rule for rule in obj["rules"] if not set(without) & set(rule["resources"])]
            objects.setdefault(f"{kind.lower()}s", []).append(obj)
    return objects


OWN = OwnState(deployments=RUNS)
STATIC = OwnState(deployments={**RUNS, "giveway-webhook": AS_STATIC})


test_own_rights = finds(
    "A role or binding that is gone is found for the accounts that run; static entries need no rights on them.",
    rights.missing,
    ("all", OWN, rbac(), ""),
    (
        "no bindings",
        OWN,
        rbac() | {"clusterrolebindings": []},
        ["error: *-webhook may not get priorityclasses*", "error: *-reconciler may not get pods*"],
    ),
    ("no roles", OWN, rbac() | {"roles": []}, ["error: *in giveway-system*"] * 2),
    ("nobody runs", OwnState(), rbac() | {"roles": []}, ""),
    ("no right on entries", OWN, rbac(CONFIGURATIONS), "error: *may not get mutatingwebhookconfigurations*"),
    ("static", STATIC, rbac(CONFIGURATIONS), ""),
    ("static, and may", STATIC, rbac(), f"warning: *giveway-webhook may still update {', '.join(CONFIGURATIONS)}."),
    given=lambda own, objects: observed(own_state=own, **objects),
)


@pytest.mark.parametrize("account", rights.NEEDED)
def test_the_manifests_give_no_more_than_the_table_says(account):
    """Each rule of manifests/base is in NEEDED; that none is missing there says the check."""
    needed = rights.NEEDED[account]
    known = {(row.group, resource, verb) for row in needed for resource in row.resources for verb in row.verbs}
    given = {
        (group, resource, verb)
        for rule in rules_of(account)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert given <= known
