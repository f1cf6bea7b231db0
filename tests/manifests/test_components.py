"""The optional components: they render with the base, and name what is in it."""

import json
import re
from pathlib import Path

import pytest

from certs.authority import service_names
from tests.manifests.objects import NAMESPACE, ROOT, base_objects, documents, kustomization
from tests.manifests.objects import find as find_in_base
from tests.manifests.rendering import NAMES, find, pod_of, rendered
from webhook.cli.main import main

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
    for rule in find_in_base(kind, name)["rules"]:
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


CLUSTER_WIDE = {
    "ClusterRole",
    "ClusterRoleBinding",
    "FlowSchema",
    "MutatingWebhookConfiguration",
    "Namespace",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
}


@pytest.mark.kubectl
@pytest.mark.parametrize("component", NAMES)
def test_a_component_adds_to_the_base(component):
    """It renders alone with the base, takes no object away, and all objects have giveway's namespace and label."""
    before, after = rendered(), rendered(component)
    assert before.keys() <= after.keys()
    assert after != before
    for (_, kind, namespace, _), obj in after.items():
        assert namespace == ("" if kind in CLUSTER_WIDE else NAMESPACE), obj["metadata"]
        assert obj["metadata"]["labels"]["app.kubernetes.io/name"] == "giveway", obj["metadata"]


@pytest.mark.kubectl
def test_all_pods_have_the_image_of_the_base():
    """A component with a pod of its own names the version that the base has."""
    used = set(re.findall(r'"image": "([^"]*)"', json.dumps(list(rendered(*NAMES).values()))))
    [image] = kustomization()["images"]
    assert used == {f"{image['name']}:{image['newTag']}"}


@pytest.mark.kubectl
@pytest.mark.parametrize("order", [NAMES, NAMES[::-1]], ids=["forwards", "backwards"])
def test_the_components_go_together(order):
    """All of them in one kustomization, in whatever order, make the sum of what each makes."""
    together, alone = rendered(*order), [rendered(name) for name in NAMES]
    assert together.keys() == {key for objects in alone for key in objects}
    server, *_ = pod_of(together, "giveway-webhook")["containers"]
    each = [set(pod_of(objects, "giveway-webhook")["containers"][0]["args"]) for objects in (rendered(), *alone)]
    replaced = {argument for arguments in each for argument in each[0] - arguments}
    assert set(server["args"]) == set().union(*each) - replaced


def options(objects):
    """The options of `giveway serve`, as the program reads the arguments."""
    [server] = [one for one in pod_of(objects, "giveway-webhook")["containers"] if one["name"] == "webhook"]
    return main.get_command(None, "serve").make_context("serve", list(server["args"][1:])).params


@pytest.mark.kubectl
def test_cert_manager_makes_what_the_server_reads():
    """The Secret of a certificate for all of the Service's names is mounted where the server reads it, and trusted."""
    objects = rendered("cert-manager")
    spec, certificate = pod_of(objects, "giveway-webhook"), find(objects, "Certificate", "giveway-webhook")["spec"]
    assert [container["name"] for container in spec["containers"]] == ["webhook"]
    assert not spec["initContainers"]
    [volume] = [volume for volume in spec["volumes"] if volume["name"] == "certificates"]
    assert volume == {"name": "certificates", "secret": {"secretName": certificate["secretName"]}}
    [mount] = [one for one in spec["containers"][0]["volumeMounts"] if one["name"] == "certificates"]
    found, directory = options(objects), Path(mount["mountPath"])
    assert (found["tls_cert_file"], found["tls_private_key_file"]) == (directory / "tls.crt", directory / "tls.key")
    assert (found["ca_file"], found["sync_ca_bundle"], mount["readOnly"]) == (directory / "ca.crt", True, True)
    assert certificate["dnsNames"] == service_names("giveway-webhook", found["system_namespace"])


@pytest.mark.kubectl
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


@pytest.mark.kubectl
def test_with_cert_manager_the_webhook_may_touch_no_secret():
    """Rights that nothing uses any more are not given; all others are."""
    before, after = (find(rendered(*names), "Role", "giveway-webhook")["rules"] for names in ((), ("cert-manager",)))
    assert after == [rule for rule in before if rule["resources"] != ["secrets"]]
    assert len(after) < len(before)


@pytest.mark.kubectl
def test_the_option_for_api_servers_without_the_priority_plugin():
    """The component gives it to the server, and the base does not."""
    assert [options(rendered(*names))["priority_plugin_off"] for names in ((), ("priority-plugin-off",))] == [
        False,
        True,
    ]


@pytest.mark.kubectl
def test_a_pod_in_the_hosts_network_is_let_in_and_finds_the_api_server():
    """The namespace allows it, DNS works as for other pods, and a rollout needs no more nodes than replicas."""
    objects = rendered("host-network")
    spec = pod_of(objects, "giveway-webhook")
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert "hostNetwork" not in pod_of(objects, "giveway-reconciler")
    labels = find(objects, "Namespace", NAMESPACE)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
    rolling = find(objects, "Deployment", "giveway-webhook")["spec"]["strategy"]["rollingUpdate"]
    budget = find(objects, "PodDisruptionBudget", "giveway-webhook")["spec"]
    assert rolling["maxUnavailable"] == budget["maxUnavailable"] == 1


@pytest.mark.kubectl
@pytest.mark.parametrize("others", [(), ("cert-manager",)], ids=["giveway-s", "cert-manager-s"])
@pytest.mark.parametrize("first", [True, False])
def test_static_entries_leave_no_account_a_right_to_change_what_is_asked(others, first):
    """No role may write webhook configurations or admission policies; nothing of the webhook tries to."""
    names = ("static-entries", *others) if first else (*others, "static-entries")
    objects = rendered(*names)
    for (_, kind, _, name), obj in objects.items():
        for rule in obj["rules"] if kind in ("Role", "ClusterRole") else ():
            if {"admissionregistration.k8s.io", "*"} & set(rule["apiGroups"]):
                assert name == "giveway-reconciler"
                assert set(rule["verbs"]) <= {"list", "watch"}
    found = options(objects)
    assert found["entries"] == "static"
    pod = pod_of(objects, "giveway-webhook")
    containers = [*(pod.get("initContainers") or []), *pod["containers"]]
    assert not any("--webhook-config" in argument for one in containers for argument in one["args"])
    assert len(containers) == (1 if others else 3)
