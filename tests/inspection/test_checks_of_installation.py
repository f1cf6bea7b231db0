"""The checks of `giveway doctor` about giveway's own parts: what they find, and what they say is to be done."""

import pytest
from ruamel.yaml import YAML

from tests.admission.builders import make_class, manage
from tests.inspection.observing import NOW, configuration, entry, found, observed
from tests.manifests.objects import BASE
from webhook.inspection.checks import alive, policies, rights
from webhook.inspection.observed import OwnState, PolicyMap
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


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        pytest.param(OwnState(deployments=RUNS), [], id="runs"),
        pytest.param(
            OwnState(deployments=deployment("giveway-reconciler")),
            [
                (
                    "error",
                    "There is no Deployment giveway-system/giveway-webhook, and the webhook configurations lead to",
                )
            ],
            id="gone",
        ),
        pytest.param(
            OwnState(
                deployments=RUNS | deployment("giveway-webhook", ready=0),
                pods=[{"metadata": {"labels": {"app": "giveway-webhook"}}, "status": {"containerStatuses": [HELD]}}],
            ),
            [("error", "Deployment giveway-webhook: 0 of 2 pods are ready (container webhook: ImagePullBackOff: no")],
            id="never-came-up",
        ),
        pytest.param(
            OwnState(deployments=RUNS | deployment("giveway-reconciler", ready=1)),
            [("warning", "Deployment giveway-reconciler: 1 of 2 pods are ready.")],
            id="one-is-left",
        ),
        pytest.param(
            OwnState(deployments=RUNS | deployment("giveway-reconciler", ready=0, wanted=0)),
            [("warning", "Deployment giveway-reconciler is scaled to 0 replicas.")],
            id="scaled-to-nothing",
        ),
    ],
)
def test_deployments(own, expected):
    """Each Deployment that does not run as it is wanted is named, with what its pods say."""
    said = found(alive.deployed, observed(own_state=own, **registered()))
    assert [
        (severity, what[: len(text)]) for (severity, what), (_, text) in zip(said, expected, strict=True)
    ] == expected


@pytest.mark.parametrize(
    ("failure", "deployments", "fix"),
    [
        pytest.param('no endpoints available for service "giveway-webhook"', RUNS, "none is ready", id="no-endpoints"),
        pytest.param(
            "dial tcp 10.0.0.1:443: connect: connection refused",
            deployment("giveway-webhook", ready=0),
            "giveway-webhook: 0 of 2 pods are ready",
            id="dead",
        ),
        pytest.param("context deadline exceeded", RUNS, "TCP port 9443 of the webhook's pods", id="closed-port"),
        pytest.param("dial tcp 10.0.0.1:443: i/o timeout", RUNS, "TCP port 9443", id="timeout"),
        pytest.param('service "giveway-webhook" not found', RUNS, "The Service is gone", id="no-service"),
        pytest.param(
            "tls: failed to verify certificate: x509: certificate has expired or is not yet valid",
            RUNS,
            "rollout restart deployment giveway-webhook has a new one issued",
            id="expired",
        ),
        pytest.param(
            "x509: certificate signed by unknown authority",
            RUNS,
            "rollout restart deployment giveway-webhook writes it again",
            id="another-authority",
        ),
        pytest.param("an error on the server", RUNS, "logs deploy/giveway-webhook", id="else"),
    ],
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


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        pytest.param(OwnState(deployments=RUNS, lease=lease()), "", id="leads"),
        pytest.param(OwnState(deployments=RUNS, lease=lease(age=90)), "", id="another-clock"),
        pytest.param(
            OwnState(deployments=RUNS, lease=lease(age=600), lease_unchanged=True), "the last time 10 min ago", id="old"
        ),
        pytest.param(OwnState(deployments=RUNS, lease=lease("")), "nobody holds Lease", id="not-held"),
        pytest.param(OwnState(deployments=RUNS), "No reconciler has led yet", id="never"),
        pytest.param(OwnState(), "No reconciler has ever run here", id="webhook-alone"),
    ],
)
def test_leader(own, expected):
    """Somebody leads if the lease is renewed, whatever the clocks say."""
    managed = make_class("giveway-online", 1000, never=True)
    said = found(alive.led, observed(managed, manage("giveway-*"), own_state=own, **registered()))
    assert [expected in what for _, what in said] == ([True] if expected else [])


POLICY = (
    "apiVersion: giveway.dev/v1alpha1\nkind: PriorityPolicy\nmetadata: {name: p}\nspec:\n  rules:\n"
    "  - {name: r, priorityClasses: {deny: [x]}}\n"
)
SOFTER = POLICY.replace("name: r", "name: r, enforcement: warn")


def maps(applied, in_force=POLICY, *, by_hand=False, **fields):
    """Policies that were applied at NOW, and those in force, written before or, by hand, afterwards."""
    kept = PolicyMap({"p.yaml": in_force}, written=NOW + 60 if by_hand else NOW - 60)
    return OwnState(applied=PolicyMap({"p.yaml": applied}, written=NOW, **fields), in_force=kept, deployments=RUNS)


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        pytest.param(maps(POLICY), [], id="the-same"),
        pytest.param(maps(POLICY.replace("deny", "denny")), ["error"], id="broken"),
        pytest.param(maps(SOFTER), ["warning"], id="held"),
        pytest.param(maps(SOFTER, allowed=("p/r",)), ["info"], id="allowed-and-under-way"),
        pytest.param(maps(POLICY.replace("[x]", "[x, y]")), ["info"], id="under-way"),
        pytest.param(maps(POLICY, SOFTER, by_hand=True), ["warning"], id="less-than-applied"),
        pytest.param(OwnState(applied=maps(POLICY).applied, deployments=RUNS), [], id="nothing-kept"),
    ],
)
def test_policies_in_force(own, expected):
    """What was applied is in force, or it is said why not."""
    assert [severity for severity, _ in found(policies.differing, observed(own_state=own))] == expected


def test_policies_in_force_that_somebody_softened():
    """A kept set that gives less than what was applied is told with what it gives up, until it is put back."""
    [one] = policies.differing(observed(own_state=maps(POLICY, SOFTER, by_hand=True)))
    assert one.severity == "warning"
    assert "giveway-policies-in-force) give less protection than ConfigMap giveway-system/giveway-policies" in one.what
    assert "p/r" in one.what
    assert "giveway_policies_in_force_restored_total" in one.fix
    meant = maps(POLICY, SOFTER, by_hand=True, allowed=("p/r",))
    assert [severity for severity, _ in found(policies.differing, observed(own_state=meant))] == ["info"]


def test_a_webhook_outside_the_cluster_has_files_of_its_own():
    """What is applied in the cluster is not what it reads."""
    own = maps(SOFTER, allowed=("p/r",))
    own.deployments = {}
    [one] = policies.differing(observed(own_state=own))
    assert (one.severity, "reads the directory that it was started with" in one.why) == ("warning", True)


def rbac():
    """The RBAC objects of manifests/base, by plural."""
    objects: dict = {}
    for name in ("webhook-rights.yaml", "reconciler-rights.yaml"):
        for one in YAML(typ="safe").load_all((BASE / name).read_text()):
            if "Role" not in one["kind"]:
                continue
            if not one["kind"].startswith("Cluster"):
                one["metadata"]["namespace"] = "giveway-system"
            for subject in one.get("subjects", ()):
                subject["namespace"] = "giveway-system"
            objects.setdefault(f"{one['kind'].lower()}s", []).append(one)
    return objects


def test_the_manifests_give_what_is_needed():
    """No right of the table is missing from manifests/base, and each rule there is in the table."""
    assert found(rights.missing, observed(own_state=OwnState(deployments=RUNS), **rbac())) == []
    for account, needed in rights.NEEDED.items():
        known = {(row.group, resource, verb) for row in needed for resource in row.resources for verb in row.verbs}
        roles = [one for plural in ("roles", "clusterroles") for one in rbac()[plural]]
        given = {
            (group, resource, verb)
            for role in roles
            if role["metadata"]["name"] == account
            for rule in role["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        assert given <= known, f"{account}: say in NEEDED what the new rights of manifests/base are"


@pytest.mark.parametrize(
    ("plural", "said"),
    [
        pytest.param("clusterrolebindings", "may not get priorityclasses", id="binding"),
        pytest.param("roles", "in giveway-system", id="role"),
    ],
)
def test_missing_rights(plural, said):
    """A role or binding that is gone is found for both accounts, and for none whose Deployment is not there."""
    less = rbac() | {plural: []}
    texts = [what for _, what in found(rights.missing, observed(own_state=OwnState(deployments=RUNS), **less))]
    assert len(texts) == 2
    assert any(said in text for text in texts)
    assert found(rights.missing, observed(**less)) == []


def test_rights_of_a_static_installation():
    """The webhook needs none on configurations; one that it still has is told."""
    container = {"args": ["serve", "--entries=static"]}
    static = {**RUNS["giveway-webhook"], "spec": {"template": {"spec": {"containers": [container]}}}}
    own = OwnState(deployments={**RUNS, "giveway-webhook": static})
    [(severity, what)] = found(rights.missing, observed(own_state=own, **rbac()))
    assert severity == "warning"
    assert "giveway-webhook may still update mutatingwebhookconfigurations, validatingwebhookconfigurations." in what
    less = rbac()
    for role in less["clusterroles"]:
        if role["metadata"]["name"] == "giveway-webhook":
            role["rules"] = [row for row in role["rules"] if "mutatingwebhookconfigurations" not in row["resources"]]
    assert found(rights.missing, observed(own_state=own, **less)) == []
    assert len(found(rights.missing, observed(own_state=OwnState(deployments=RUNS), **less))) == 1
