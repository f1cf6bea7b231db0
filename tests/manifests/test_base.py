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
from webhook.admission.configmaps import PROBE
from webhook.cli.main import main
from webhook.component_base.own_names import WEBHOOK
from webhook.kube.quantity import units
from webhook.registration.entries import MUTATING, VALIDATING, WebhookTarget
from webhook.serving.bodies import BODY_LIMIT, BUDGET
from webhook.serving.connections import MOST_CONNECTIONS

DEPLOYMENTS = ["giveway-webhook", "giveway-reconciler"]
ALL_CONTAINERS = [
    pytest.param(deployment, name, id=f"{deployment}/{name}")
    for deployment in DEPLOYMENTS
    for name in containers(deployment)
]
CONFIGURATIONS = [MUTATING, VALIDATING]


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


@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_the_configurations_are_there_to_be_filled_in(kind):
    """They have no `webhooks`: what installs them neither sets nor resets what the server writes."""
    assert set(find(kind, "giveway")) == {"apiVersion", "kind", "metadata"}
    server = arguments(containers("giveway-webhook")["webhook"])
    assert server["entries"] == "keep"
    assert find("ConfigMap", PROBE)["metadata"]["namespace"] == NAMESPACE


def test_every_entry_finds_the_server():
    """Service, port and path of each entry lead to the serving container, with its own authority and Deployment."""
    server = containers("giveway-webhook")["webhook"]
    options = arguments(server)
    target = WebhookTarget(namespace=options["system-namespace"])
    found = find("Service", target.service)
    [port] = found["spec"]["ports"]
    assert (target.namespace, target.port) == (found["metadata"]["namespace"], port["port"])
    ports = {entry["name"]: str(entry["containerPort"]) for entry in server["ports"]}
    assert ports == {"https": options["secure-port"], "health": options["health-port"]}
    assert port["targetPort"] == "https"
    labels = find("Deployment", WEBHOOK)["spec"]["template"]["metadata"]["labels"]
    assert found["spec"]["selector"].items() <= labels.items()
    assert options["ca-file"].removesuffix("/ca.crt") == options["tls-cert-file"].removesuffix("/tls.crt")
    assert main.get_command(None, "serve").make_context("serve", list(server["args"][1:])).params["url"] is None


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
    """What bodies and connections may hold at once leaves most of the webhook's memory for everything else."""
    limit = units(containers("giveway-webhook")["webhook"]["resources"]["limits"]["memory"])
    assert limit >= 2 * (BUDGET + 2 * BODY_LIMIT + MOST_CONNECTIONS * 128 * 1024)


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
    # One constraint: a second one, over zones, would make kube-scheduler pass over nodes without zones in scoring both
    assert [constraint["topologyKey"] for constraint in constraints] == ["kubernetes.io/hostname"]
    assert [constraint["matchLabelKeys"] for constraint in constraints] == [["pod-template-hash"]]
    assert all(constraint["labelSelector"]["matchLabels"] == labels for constraint in constraints)


@pytest.mark.parametrize("deployment", ["giveway-webhook", "giveway-reconciler"])
def test_servers_have_time_to_start_and_log_alike(deployment):
    """Two minutes before a slow start is taken for a failure; every container logs JSON."""
    found = containers(deployment)
    servers = [one for one in found.values() if "livenessProbe" in one]
    assert [one["startupProbe"]["periodSeconds"] * one["startupProbe"]["failureThreshold"] for one in servers] == [120]
    for one in found.values():
        assert one in servers or {"--log", "--keep"} & {*one["args"]}


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


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_each_deployment_has_its_own_account(deployment):
    """Neither process has the other's rights; both know their namespace."""
    assert pod_spec(deployment)["serviceAccountName"] == deployment
    assert find("ServiceAccount", deployment)["metadata"]["namespace"] == NAMESPACE
    server = containers(deployment)[deployment.removeprefix("giveway-")]
    assert arguments(server)["system-namespace"] == NAMESPACE


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
