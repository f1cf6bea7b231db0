"""The optional components: they render with the base, and name what is in it."""

import os
import shutil
import subprocess

import pytest

from tests.manifests.objects import BASE, NAMESPACE, ROOT, base_objects, documents, find

FLOW_SCHEMA = ROOT / "manifests" / "components" / "flow-schema"
NETWORK_POLICY = ROOT / "manifests" / "components" / "network-policy"
SCHEMAS = {obj["metadata"]["name"]: obj for obj in documents(FLOW_SCHEMA / "flow-schemas.yaml")}
ACCOUNTS = {(NAMESPACE, obj["metadata"]["name"]) for obj in base_objects() if obj["kind"] == "ServiceAccount"}


def subjects(schema):
    """The service accounts of a FlowSchema's rules, namespace and name."""
    for rule in schema["spec"]["rules"]:
        for subject in rule["subjects"]:
            assert subject["kind"] == "ServiceAccount"
            yield subject["serviceAccount"]["namespace"], subject["serviceAccount"]["name"]


def matched(schema, account, verb, group, resource):
    """Whether a FlowSchema takes such a request."""
    rules = [rule for rule in schema["spec"]["rules"] if (NAMESPACE, account) in subjects({"spec": {"rules": [rule]}})]
    return any(
        group in part["apiGroups"] and {resource, "*"} & set(part["resources"]) and {verb, "*"} & set(part["verbs"])
        for rule in rules
        for part in rule["resourceRules"]
    )


def rights(kind, name):
    """Verb, group and resource of everything that a role of the base allows; sub-resources without their parents."""
    for rule in find(kind, name)["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield verb, group, resource


def test_the_flow_schemas_name_the_accounts_of_the_base():
    """Both service accounts have the level of controllers; only the reconciler has a lease."""
    assert set(subjects(SCHEMAS["giveway"])) == ACCOUNTS
    assert set(subjects(SCHEMAS["giveway-leader-election"])) == {(NAMESPACE, "giveway-reconciler")}


def test_leases_and_evictions_have_levels_of_their_own():
    """The lease goes to leader-election, everything else but Events to workload-high, before the built-in catch-all."""
    lease, rest = SCHEMAS["giveway-leader-election"]["spec"], SCHEMAS["giveway"]["spec"]
    assert lease["priorityLevelConfiguration"]["name"] == "leader-election"
    assert rest["priorityLevelConfiguration"]["name"] == "workload-high"
    assert lease["matchingPrecedence"] < rest["matchingPrecedence"] < 9000
    for right in rights("ClusterRole", "giveway-reconciler"):
        assert matched(SCHEMAS["giveway"], "giveway-reconciler", *right) is (right[2] != "events"), right
    for right in rights("Role", "giveway-reconciler"):
        schema = "giveway-leader-election" if right[2] == "leases" else "giveway"
        assert matched(SCHEMAS[schema], "giveway-reconciler", *right), right
    for right in rights("ClusterRole", "giveway-webhook"):
        assert matched(SCHEMAS["giveway"], "giveway-webhook", *right), right


def test_the_network_policies_let_in_what_must_get_in():
    """Reviews come from anywhere, probes and metrics from one namespace; the ports are those of the base, by name."""
    policies = {obj["metadata"]["name"]: obj["spec"] for obj in documents(NETWORK_POLICY / "network-policies.yaml")}
    deployments = [obj for obj in base_objects() if obj["kind"] == "Deployment"]
    assert set(policies) == {obj["metadata"]["name"] for obj in deployments}
    for deployment in deployments:
        policy = policies[deployment["metadata"]["name"]]
        labels = deployment["spec"]["selector"]["matchLabels"]
        assert policy["podSelector"]["matchLabels"] == labels
        assert policy["policyTypes"] == ["Ingress"]
        named = {
            port["name"]
            for container in deployment["spec"]["template"]["spec"]["containers"]
            for port in container.get("ports", ())
        }
        opened = {rule["ports"][0]["port"]: rule.get("from") for rule in policy["ingress"]}
        assert set(opened) <= named
        assert opened["health"]
        assert opened.get("https") is None


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_the_components_render_with_the_base(tmp_path):
    """A kustomization that names base and components holds the objects of all, as docs/install.md says."""
    components = ", ".join(os.path.relpath(path, tmp_path) for path in (FLOW_SCHEMA, NETWORK_POLICY))
    (tmp_path / "kustomization.yaml").write_text(
        f"resources: [{os.path.relpath(BASE, tmp_path)}]\ncomponents: [{components}]\n"
    )
    rendered = tmp_path / "rendered.yaml"
    with rendered.open("wb") as output:
        subprocess.run(["kubectl", "kustomize", tmp_path], stdout=output, check=True, timeout=60)
    found = {(obj["kind"], obj["metadata"]["name"]) for obj in documents(rendered)}
    assert {("NetworkPolicy", "giveway-webhook"), ("NetworkPolicy", "giveway-reconciler")} < found
    assert {("FlowSchema", "giveway"), ("FlowSchema", "giveway-leader-election")} < found
    assert ("Deployment", "giveway-reconciler") in found
