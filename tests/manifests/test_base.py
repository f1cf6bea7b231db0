"""The base as text: narrow rules, least rights, ports and names that agree with each other and with the program."""

import shutil
import subprocess
import tomllib

import click
import pytest

from tests.manifests.objects import (
    BASE,
    NAMESPACE,
    POLICIES,
    ROOT,
    arguments,
    base_objects,
    containers,
    documents,
    find,
    kustomization,
    pod_spec,
)
from webhook.admission.decode import WORKLOADS
from webhook.cli.main import main
from webhook.embedded.admission.match_conditions import conditions_hold
from webhook.kube.quantity import units
from webhook.policy.loading import load_or_raise
from webhook.registration.entries import VALIDATING, Target, entries
from webhook.serving import bodies

DEPLOYMENTS = ["giveway-webhook", "giveway-reconciler"]
ALL_CONTAINERS = [
    pytest.param(deployment, name, id=f"{deployment}/{name}")
    for deployment in DEPLOYMENTS
    for name in containers(deployment)
]
CONFIGURATIONS = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
WEBHOOKS = [pytest.param(w, id=w["name"]) for kind in CONFIGURATIONS for w in find(kind, "giveway")["webhooks"]]


def reached(kind):
    """Group, resource and operation of everything a configuration asks to see."""
    return {
        (group, resource, operation)
        for webhook in find(kind, "giveway")["webhooks"]
        for rule in webhook["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for operation in rule["operations"]
    }


def test_the_base_holds_every_file():
    """No file of the base is forgotten in its kustomization."""
    listed = {name for name in kustomization()["resources"] if name.endswith(".yaml")}
    assert listed == {path.name for path in BASE.glob("*.yaml")} - {"kustomization.yaml"}


def test_the_config_map_holds_every_policy():
    """Each policy file that `--policies policies` would read is in the ConfigMap."""
    [generator] = documents(POLICIES / "Kustomization")[0]["configMapGenerator"]
    assert sorted(generator["files"]) == sorted(path.name for path in POLICIES.glob("*.y*ml"))


def test_the_image_is_of_this_version():
    """The image's tag is the project's version."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert kustomization()["images"] == [{"name": "giveway", "newTag": version}]


def test_what_is_mutated():
    """Pods when they are made, classes also when their manifest is applied again, and nothing else."""
    assert reached("MutatingWebhookConfiguration") == {
        ("", "pods", "CREATE"),
        ("scheduling.k8s.io", "priorityclasses", "CREATE"),
        ("scheduling.k8s.io", "priorityclasses", "UPDATE"),
    }


def test_what_is_validated():
    """Pods, classes and everything that carries a pod template, when made and when changed; and what writes to pods."""
    judged = {("", "pods"), ("scheduling.k8s.io", "priorityclasses"), *WORKLOADS}
    wanted = {(group, resource, operation) for group, resource in judged for operation in ("CREATE", "UPDATE")}
    wanted |= {("", "pods/status", "UPDATE"), ("", "pods/binding", "CREATE"), ("", "bindings", "CREATE")}
    assert reached("ValidatingWebhookConfiguration") == wanted


def test_the_shipped_conditions_are_those_of_the_shipped_policies():
    """The entries for status and bindings are the ones that are generated from policies/."""
    webhooks = {webhook["name"]: webhook for webhook in find("ValidatingWebhookConfiguration", "giveway")["webhooks"]}
    for entry in entries(load_or_raise(POLICIES), Target())[VALIDATING]:
        if entry["name"].startswith(("pods-status", "pods-binding")):
            shipped = webhooks[entry["name"]]
            assert shipped["matchConditions"] == entry["matchConditions"]
            assert (shipped["rules"], shipped["clientConfig"]) == (entry["rules"], entry["clientConfig"])


@pytest.mark.parametrize("webhook", WEBHOOKS)
def test_every_webhook_says_how_it_is_to_be_called(webhook):
    """Timeout, side effects, match policy, failure policy and versions are explicit."""
    assert webhook["timeoutSeconds"] == 5
    assert webhook["sideEffects"] == "None"
    assert webhook["matchPolicy"] == "Equivalent"
    assert webhook["admissionReviewVersions"] == ["v1"]
    assert webhook["failurePolicy"] == ("Ignore" if webhook["name"].startswith("workloads") else "Fail")
    assert webhook.get("reinvocationPolicy") == ("IfNeeded" if ".mutate." in webhook["name"] else None)
    assert "caBundle" not in webhook["clientConfig"]


@pytest.mark.parametrize("webhook", WEBHOOKS)
def test_no_webhook_keeps_itself_from_starting(webhook):
    """Its own namespace, and what the cluster needs to get up, are never asked about."""
    if any(rule["scope"] == "Cluster" for rule in webhook["rules"]):
        assert webhook["rules"][0]["resources"] == ["priorityclasses"]
        return
    [expression] = webhook["namespaceSelector"]["matchExpressions"]
    assert expression == {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": [NAMESPACE, "kube-system"],
    }


OLD = {"metadata": {"labels": {"a": "b"}, "finalizers": ["job"]}, "spec": {"priority": 1}}


@pytest.mark.parametrize(
    ("operation", "changes", "judged"),
    [
        pytest.param("CREATE", {}, True, id="create"),
        pytest.param("UPDATE", {}, False, id="nothing"),
        pytest.param("UPDATE", {"finalizers": []}, False, id="finalizer"),
        pytest.param("UPDATE", {"labels": {"a": "c"}}, True, id="label"),
        pytest.param("UPDATE", {"labels": None}, True, id="last-label"),
        pytest.param("UPDATE", {"annotations": {"a": "b"}}, True, id="first-annotation"),
        pytest.param("UPDATE", {"spec": {"priority": 2}}, True, id="spec"),
        pytest.param("UPDATE", {"labels": {}, "deletionTimestamp": "2026-11-21T00:00:00Z"}, False, id="goes-anyway"),
    ],
)
def test_updates_that_cannot_matter_do_not_wait_for_the_webhook(operation, changes, judged):
    """The API server asks about new pods, and about changes of spec, labels or annotations of pods that stay."""
    webhook = find("ValidatingWebhookConfiguration", "giveway")["webhooks"][0]
    conditions = [(condition["name"], condition["expression"]) for condition in webhook["matchConditions"]]
    metadata = {**OLD["metadata"], **{key: value for key, value in changes.items() if key != "spec"}}
    new = {"metadata": {k: v for k, v in metadata.items() if v is not None}, "spec": changes.get("spec", OLD["spec"])}
    old = OLD if operation == "UPDATE" else None
    assert webhook["name"] == "pods.validate.giveway.dev"
    assert conditions_hold(conditions, {"operation": operation, "object": new, "oldObject": old}) is judged


@pytest.mark.parametrize("webhook", WEBHOOKS)
def test_every_webhook_finds_the_server(webhook):
    """Service, port and path of each webhook lead to the serving container."""
    service = webhook["clientConfig"]["service"]
    found = find("Service", service["name"])
    assert service["namespace"] == found["metadata"]["namespace"] == NAMESPACE
    [port] = found["spec"]["ports"]
    assert service["port"] == port["port"]
    assert service["path"] == ("/mutate" if ".mutate." in webhook["name"] else "/validate")
    server = containers("giveway-webhook")["webhook"]
    ports = {entry["name"]: str(entry["containerPort"]) for entry in server["ports"]}
    assert ports == {"https": arguments(server)["secure-port"], "health": arguments(server)["health-port"]}
    assert port["targetPort"] == "https"
    labels = find("Deployment", "giveway-webhook")["spec"]["template"]["metadata"]["labels"]
    assert found["spec"]["selector"].items() <= labels.items()


def parse(command, name, args):
    """Parse arguments as the program would, without running it; the innermost command's name."""
    context = command.make_context(name, list(args))
    if not isinstance(command, click.Group):
        return name
    inner_name, inner, rest = command.resolve_command(context, [*context._protected_args, *context.args])
    return parse(inner, inner_name, rest)


@pytest.mark.parametrize(("deployment", "name"), ALL_CONTAINERS)
def test_every_container_calls_the_program_rightly(deployment, name):
    """The program takes the arguments of every container, and their defaults are no accident."""
    container = containers(deployment)[name]
    expected = {"webhook": "serve", "reconciler": "reconcile"}.get(name, "issue")
    assert parse(main, "giveway", container["args"]) == expected


@pytest.mark.parametrize(("deployment", "name"), ALL_CONTAINERS)
def test_every_container_is_confined(deployment, name):
    """All containers meet the restricted Pod Security Standard, with a read-only root and bounded memory."""
    container, spec = containers(deployment)[name], pod_spec(deployment)
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert set(container["resources"]) == {"requests", "limits"}
    assert "memory" in container["resources"]["limits"]
    assert container["image"] == "giveway"


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_critical_pods_may_be_made_where_that_is_limited(deployment):
    """Where the system classes need a quota that speaks of them, there is one for the class the pods have."""
    [scope] = find("ResourceQuota", "giveway-critical-pods")["spec"]["scopeSelector"]["matchExpressions"]
    assert scope == {
        "scopeName": "PriorityClass",
        "operator": "In",
        "values": [pod_spec(deployment)["priorityClassName"]],
    }


def test_bodies_cannot_fill_the_memory():
    """What reviews may hold at once leaves most of the webhook's memory for everything else."""
    limit = units(containers("giveway-webhook")["webhook"]["resources"]["limits"]["memory"])
    assert limit >= 3 * bodies._BUDGET


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_probes_ask_the_health_port(deployment):
    """Liveness and readiness go to the port that `--health-port` opens."""
    server = containers(deployment)[deployment.removeprefix("giveway-")]
    named = {port["name"]: str(port["containerPort"]) for port in server["ports"]}
    assert named["health"] == arguments(server)["health-port"]
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert server[probe]["httpGet"] == {"path": path, "port": "health"}


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_one_replica_is_always_left(deployment):
    """Two replicas, spread over nodes, of which a drain takes one at a time."""
    spec = find("Deployment", deployment)["spec"]
    labels = spec["template"]["metadata"]["labels"]
    budget = find("PodDisruptionBudget", deployment)["spec"]
    assert (spec["replicas"], budget["maxUnavailable"]) == (2, 1)
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert spec["selector"]["matchLabels"] == labels
    assert budget["selector"]["matchLabels"] == labels
    constraints = pod_spec(deployment)["topologySpreadConstraints"]
    assert all(constraint["labelSelector"]["matchLabels"] == labels for constraint in constraints)
    assert "kubernetes.io/hostname" in {constraint["topologyKey"] for constraint in constraints}


def test_the_server_reads_what_the_certificates_are_written_to():
    """Certificates are issued before the server starts, kept while it runs, and read from where they are written."""
    found = containers("giveway-webhook")
    assert list(found) == ["issue-certificates", "webhook", "keep-certificates"]
    server, issue, keep = (found[name] for name in ("webhook", "issue-certificates", "keep-certificates"))
    assert keep["args"] == [*issue["args"][:2], "--keep", *issue["args"][2:]]
    directory = arguments(issue)["dir"]
    assert arguments(server)["tls-cert-file"] == f"{directory}/tls.crt"
    assert arguments(server)["tls-private-key-file"] == f"{directory}/tls.key"
    assert arguments(issue)["service"] == f"{NAMESPACE}/giveway-webhook"
    mounts = [next(m for m in c["volumeMounts"] if m["name"] == "certificates") for c in (issue, server, keep)]
    assert [m["mountPath"] for m in mounts] == ["/run/giveway"] * 3
    assert [m.get("readOnly", False) for m in mounts] == [False, True, False]


def test_policies_are_mounted_where_they_are_read():
    """Both Deployments read the ConfigMap of the policies."""
    for deployment in DEPLOYMENTS:
        [volume] = [v for v in pod_spec(deployment)["volumes"] if v["name"] == "policies"]
        assert volume["configMap"]["name"] == "giveway-policies"
        server = containers(deployment)[deployment.removeprefix("giveway-")]
        mounts = {mount["name"]: mount["mountPath"] for mount in server["volumeMounts"]}
        assert mounts["policies"] == arguments(server)["policies"]


def granted(account):
    """Everything a service account may: (group, resource, verb, names), cluster-wide and in its namespace."""
    rights = {"ClusterRole": set(), "Role": set()}
    for binding in base_objects():
        if not binding["kind"].endswith("RoleBinding"):
            continue
        if {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE} not in binding["subjects"]:
            continue
        kind = binding["roleRef"]["kind"]
        for rule in find(kind, binding["roleRef"]["name"])["rules"]:
            names = tuple(rule.get("resourceNames", ()))
            rights[kind] |= {
                (g, r, v, names) for g in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]
            }
    return rights["ClusterRole"], rights["Role"]


def rights(*rows):
    """Rows of (group, resources, verbs, names) as single rights."""
    return {(group, resource, verb, tuple(names)) for group, rs, vs, names in rows for resource in rs for verb in vs}


def test_the_webhook_may_what_it_needs_and_no_more():
    """Read classes and namespaces; keep one Secret and the caBundle of its own configurations."""
    everywhere, at_home = granted("giveway-webhook")
    assert everywhere == rights(
        ("scheduling.k8s.io", ["priorityclasses"], ["get", "list", "watch"], []),
        ("", ["namespaces"], ["get", "list", "watch"], []),
        (
            "admissionregistration.k8s.io",
            ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
            ["get", "update"],
            ["giveway"],
        ),
    )
    assert at_home == rights(("", ["secrets"], ["create"], []), ("", ["secrets"], ["get", "update"], ["giveway-tls"]))
    assert arguments(containers("giveway-webhook")["issue-certificates"])["secret"] == f"{NAMESPACE}/giveway-tls"


def test_the_reconciler_may_what_it_needs_and_no_more():
    """Read what decides, nominate, evict, tell, and hold one lease."""
    everywhere, at_home = granted("giveway-reconciler")
    assert everywhere == rights(
        ("", ["pods"], ["get", "list", "watch"], []),
        ("", ["pods/status"], ["patch"], []),
        ("", ["pods/eviction"], ["create"], []),
        ("", ["nodes", "namespaces", "persistentvolumes", "persistentvolumeclaims"], ["list", "watch"], []),
        ("storage.k8s.io", ["storageclasses", "csinodes"], ["list", "watch"], []),
        ("scheduling.k8s.io", ["priorityclasses"], ["list", "watch"], []),
        ("policy", ["poddisruptionbudgets"], ["list", "watch"], []),
        ("events.k8s.io", ["events"], ["create", "patch"], []),
    )
    server = arguments(containers("giveway-reconciler")["reconciler"])
    assert at_home == rights(
        ("coordination.k8s.io", ["leases"], ["create"], []),
        ("coordination.k8s.io", ["leases"], ["get", "update"], [server["lease-name"]]),
    )
    assert server["lease-namespace"] == NAMESPACE


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_each_deployment_has_its_own_account(deployment):
    """Neither process has the other's rights."""
    assert pod_spec(deployment)["serviceAccountName"] == deployment
    assert find("ServiceAccount", deployment)["metadata"]["namespace"] == NAMESPACE


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_renders_the_base(tmp_path):
    """`kubectl kustomize manifests/base` works as it is, and renders what these tests looked at."""
    rendered = tmp_path / "base.yaml"
    with rendered.open("wb") as output:
        subprocess.run(["kubectl", "kustomize", BASE], stdout=output, check=True, timeout=60)
    found = {(obj["kind"], obj["metadata"]["name"]): obj for obj in documents(rendered)}
    expected = {(obj["kind"], obj["metadata"]["name"]): obj for obj in base_objects()}
    assert set(found) == set(expected)
    for key, obj in expected.items():
        assert found[key]["metadata"].get("namespace") == obj["metadata"].get("namespace")
    assert found["ConfigMap", "giveway-policies"]["data"] == expected["ConfigMap", "giveway-policies"]["data"]
    images = {c["image"] for c in found["Deployment", "giveway-webhook"]["spec"]["template"]["spec"]["containers"]}
    assert images == {f"giveway:{kustomization()['images'][0]['newTag']}"}
