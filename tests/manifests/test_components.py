"""The optional components: they go together, and name what is in the base."""

import pytest
from click.testing import CliRunner

from tests.manifests.objects import COMPONENTS, NAMESPACE, ROOT, documents
from tests.manifests.rendering import NAMES, arguments, containers, find, pod_of, rendered, rules_of
from webhook.cli.main import main

BASE = rendered()
SCHEMAS = {obj["metadata"]["name"]: obj["spec"] for obj in documents(COMPONENTS / "flow-schema" / "flow-schemas.yaml")}
LEVELS = {"giveway-leader-election": "leader-election", "giveway": "workload-high"}


def level_of(account, verb, group, resource):
    """The FlowSchema that takes such a request of an account of the base; None if none does."""
    for name in LEVELS:
        for rule in SCHEMAS[name]["rules"]:
            accounts = {(row["serviceAccount"]["namespace"], row["serviceAccount"]["name"]) for row in rule["subjects"]}
            if (NAMESPACE, account) in accounts and any(
                group in part["apiGroups"]
                and {resource, "*"} & set(part["resources"])
                and {verb, "*"} & set(part["verbs"])
                for part in rule["resourceRules"]
            ):
                return name
    return None


@pytest.mark.parametrize("account", ["giveway-webhook", "giveway-reconciler"])
def test_leases_and_evictions_have_levels_of_their_own(account):
    """The lease goes to leader-election, everything else but Events to workload-high, before the built-in catch-all."""
    lease, rest = (SCHEMAS[name] for name in LEVELS)
    assert {name: SCHEMAS[name]["priorityLevelConfiguration"]["name"] for name in LEVELS} == LEVELS
    assert lease["matchingPrecedence"] < rest["matchingPrecedence"] < 9000
    for rule in rules_of(account):
        for group, resource in ((group, resource) for group in rule["apiGroups"] for resource in rule["resources"]):
            of_its_own = {"leases": "giveway-leader-election", "events": None}
            for verb in rule["verbs"]:
                assert level_of(account, verb, group, resource) == of_its_own.get(resource, "giveway"), resource


@pytest.mark.parametrize("deployment", ["giveway-webhook", "giveway-reconciler"])
def test_the_network_policies_let_in_what_must_get_in(deployment):
    """Reviews come from anywhere, probes and metrics from one namespace; the ports are those of the base, by name."""
    policy = find(rendered("network-policy"), "NetworkPolicy", deployment)["spec"]
    selector = find(BASE, "Deployment", deployment)["spec"]["selector"]
    assert (policy["podSelector"], policy["policyTypes"]) == (selector, ["Ingress"])
    named = {port["name"] for container in containers(deployment).values() for port in container.get("ports", ())}
    opened = {rule["ports"][0]["port"]: rule.get("from") for rule in policy["ingress"]}
    assert set(opened) <= named
    assert opened["health"]
    assert opened.get("https") is None


@pytest.mark.parametrize("order", [NAMES, NAMES[::-1]], ids=["forwards", "backwards"])
def test_the_components_go_together(order):
    """All of them in one kustomization, in whatever order, make the sum of what each adds to the base."""
    together, alone = rendered(*order), [rendered(name) for name in NAMES]
    assert all(BASE.keys() <= objects.keys() and objects != BASE for objects in alone)
    assert {obj["metadata"]["labels"]["app.kubernetes.io/name"] for obj in together.values()} == {"giveway"}
    assert together.keys() == {key for objects in alone for key in objects}
    server = containers("giveway-webhook", *order)["webhook"]
    each = [set(pod_of(objects, "giveway-webhook")["containers"][0]["args"]) for objects in (BASE, *alone)]
    replaced = {argument for arguments in each for argument in each[0] - arguments}
    assert set(server["args"]) == set().union(*each) - replaced


def test_cert_manager_signs_with_an_authority_that_keeps_its_key():
    """The issuers lead from the self-signed authority to the certificate; the authority's renewals trust each other."""
    objects = rendered("cert-manager")
    certificate, authority = (
        find(objects, "Certificate", f"giveway-{name}")["spec"] for name in ("webhook", "authority")
    )
    issuer = find(objects, "Issuer", certificate["issuerRef"]["name"])["spec"]
    assert issuer == {"ca": {"secretName": authority["secretName"]}}
    assert find(objects, "Issuer", authority["issuerRef"]["name"])["spec"] == {"selfSigned": {}}
    assert (authority["isCA"], authority["privateKey"]["rotationPolicy"]) == (True, "Never")
    assert authority["secretName"] != certificate["secretName"]
    # Rights that nothing uses any more are not given; all others are
    kept = [rule for rule in rules_of("giveway-webhook") if rule["resources"] != ["secrets"]]
    assert rules_of("giveway-webhook", "cert-manager") == kept != rules_of("giveway-webhook")


@pytest.mark.parametrize("others", [(), ("cert-manager",)], ids=["giveway-s", "cert-manager-s"])
@pytest.mark.parametrize("first", [True, False])
def test_static_entries_leave_no_account_a_right_to_change_what_is_asked(others, first):
    """No role may write webhook configurations or admission policies; nothing of the webhook tries to."""
    names = ("static-entries", *others) if first else (*others, "static-entries")
    for (_, kind, _, name), obj in rendered(*names).items():
        for rule in obj["rules"] if kind in ("Role", "ClusterRole") else ():
            if {"admissionregistration.k8s.io", "*"} & set(rule["apiGroups"]):
                assert name == "giveway-reconciler"
                assert set(rule["verbs"]) <= {"list", "watch"}
    started = containers("giveway-webhook", *names)
    assert arguments(started["webhook"])["entries"] == "static"
    assert not any("--webhook-config" in argument for each in started.values() for argument in each["args"])
    assert len(started) == (1 if others else 3)


def test_the_native_policies_are_those_that_are_shipped(tmp_path, monkeypatch):
    """The file is what `giveway compile` makes of policies/ for a cluster without classes; the keeper adds these."""
    monkeypatch.chdir(ROOT)
    (tmp_path / "none.yaml").write_text("{apiVersion: v1, kind: Namespace, metadata: {name: a}}")
    result = CliRunner().invoke(main, ["compile", "policies", "--objects", str(tmp_path / "none.yaml")])
    assert (result.exit_code, result.stderr) == (0, "")
    assert (COMPONENTS / "native-policies" / "policies.yaml").read_text() == result.stdout
