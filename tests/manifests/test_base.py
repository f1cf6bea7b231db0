"""The base and the pods of all components: confined, of this version, and with names and ports that the program has."""

import re
import tomllib

import click
import pytest

from certs.authority import service_names
from tests.manifests.objects import BASE, NAMESPACE, POLICIES, ROOT, documents
from tests.manifests.rendering import NAMES, arguments, containers, find, pod_of, rendered
from webhook.admission.configmaps import PROBE
from webhook.cli.main import main
from webhook.component_base.own_names import WEBHOOK
from webhook.kube.quantity import units
from webhook.registration.entries import MUTATING, VALIDATING, WebhookTarget
from webhook.serving.bodies import BODY_LIMIT, BUDGET
from webhook.serving.connections import MOST_CONNECTIONS

DEPLOYMENTS = ["giveway-webhook", "giveway-reconciler"]
OBJECTS = rendered()
WITH_NATIVE = rendered("native-policies")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def pods():
    """Every pod template that is shipped, with who it is."""
    yield from ((name, pod_of(WITH_NATIVE, name)) for name in (*DEPLOYMENTS, "giveway-native"))
    job = find(rendered("scan"), "CronJob", "giveway-scan")["spec"]["jobTemplate"]
    yield "giveway-scan", job["spec"]["template"]["spec"]


ALL_CONTAINERS = [
    pytest.param(spec, container, id=f"{name}/{container['name']}")
    for name, spec in pods()
    for container in [*(spec.get("initContainers") or ()), *spec["containers"]]
]


def test_no_file_is_forgotten():
    """Each file of the base is in its kustomization, each policy that `--policies policies` reads in the ConfigMap."""
    listed = {name for name in documents(BASE / "kustomization.yaml")[0]["resources"] if name.endswith(".yaml")}
    assert listed == {path.name for path in BASE.glob("*.yaml")} - {"kustomization.yaml"}
    kept = find(OBJECTS, "ConfigMap", "giveway-policies")["data"]
    assert kept == {path.name: path.read_text() for path in POLICIES.glob("*.y*ml")}


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("manifests/base/kustomization.yaml", "  newTag: {}\n"),
        ("manifests/chart/Chart.yaml", "\nversion: {}\n"),
        ("manifests/chart/Chart.yaml", "\nappVersion: {}\n"),
        ("manifests/krew/giveway.yaml", "\n  version: v{}\n"),
        ("Dockerfile", "ARG VERSION={}\n"),
        ("Makefile", "IMAGE ?= giveway:{}\n"),
    ],
)
def test_every_place_names_the_version_of_the_project(file, line):
    """Images, chart and plugin are of this version."""
    assert line.format(VERSION) in (ROOT / file).read_text()


def test_all_pods_have_the_image_of_the_base():
    """A component with a pod of its own names the version that the base has."""
    for objects in (rendered(*NAMES), WITH_NATIVE):
        assert set(re.findall(r"'image': '([^']*)'", str(list(objects.values())))) == {f"giveway:{VERSION}"}


@pytest.mark.parametrize("kind", [MUTATING, VALIDATING])
def test_the_configurations_are_there_to_be_filled_in(kind):
    """They have no `webhooks`: what installs them neither sets nor resets what the server writes."""
    assert set(find(OBJECTS, kind, "giveway")) == {"apiVersion", "kind", "metadata"}
    assert arguments(containers("giveway-webhook")["webhook"])["entries"] == "keep"
    assert find(OBJECTS, "ConfigMap", PROBE)["metadata"]["namespace"] == NAMESPACE


def test_every_entry_finds_the_server():
    """Service, port and path of each entry lead to the serving container, with its own authority and Deployment."""
    server = containers("giveway-webhook")["webhook"]
    options = arguments(server)
    target = WebhookTarget(namespace=options["system-namespace"])
    service = find(OBJECTS, "Service", target.service)
    [port] = service["spec"]["ports"]
    assert (target.namespace, target.port) == (service["metadata"]["namespace"], port["port"])
    ports = {entry["name"]: str(entry["containerPort"]) for entry in server["ports"]}
    assert ports == {"https": options["secure-port"], "health": options["health-port"]}
    assert port["targetPort"] == "https"
    labels = find(OBJECTS, "Deployment", WEBHOOK)["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert options["ca-file"].removesuffix("/ca.crt") == options["tls-cert-file"].removesuffix("/tls.crt")


@pytest.mark.parametrize(("spec", "container"), ALL_CONTAINERS)
def test_every_container_calls_the_program_rightly_and_is_confined(spec, container, tmp_path):
    """The program takes its arguments, it meets the restricted Pod Security Standard, and its memory is bounded."""
    args = [argument.replace("/etc/giveway/policies", str(tmp_path)) for argument in container["args"]]
    command, context = main, click.Context(main)
    while isinstance(command, click.Group):
        context = command.make_context(args[0], args)
        _, command, args = command.resolve_command(context, [*context._protected_args, *context.args])
    params = command.make_context("giveway", args).params
    assert params.get("system_namespace", NAMESPACE) == NAMESPACE
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


def test_bodies_cannot_fill_the_memory():
    """What bodies and connections may hold at once leaves most of the webhook's memory for everything else."""
    limit = units(containers("giveway-webhook")["webhook"]["resources"]["limits"]["memory"])
    assert limit >= 2 * (BUDGET + 2 * BODY_LIMIT + MOST_CONNECTIONS * 128 * 1024)


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_servers_are_probed_and_find_their_policies(deployment):
    """Probes go to the port that `--health-port` opens, a slow start has two minutes, every container logs JSON."""
    started = containers(deployment)
    server, spec = started[deployment.removeprefix("giveway-")], pod_of(OBJECTS, deployment)
    ports = {port["name"]: str(port["containerPort"]) for port in server["ports"]}
    assert ports["health"] == arguments(server)["health-port"]
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert server[probe]["httpGet"] == {"path": path, "port": "health"}
    assert server["startupProbe"]["periodSeconds"] * server["startupProbe"]["failureThreshold"] == 120
    assert all(each is server or {"--log", "--keep"} & {*each["args"]} for each in started.values())
    [volume] = [volume for volume in spec["volumes"] if volume["name"] == "policies"]
    assert volume["configMap"]["name"] == "giveway-policies"
    mounts = {mount["name"]: mount["mountPath"] for mount in server["volumeMounts"]}
    assert mounts["policies"] == arguments(server)["policies"]
    assert spec["serviceAccountName"] == deployment
    # Where the system classes need a quota that speaks of them, there is one for the class the pods have
    [scope] = find(OBJECTS, "ResourceQuota", "giveway-critical-pods")["spec"]["scopeSelector"]["matchExpressions"]
    assert scope == {"scopeName": "PriorityClass", "operator": "In", "values": [spec["priorityClassName"]]}


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_one_replica_is_always_left(deployment):
    """Two replicas, spread over nodes, of which a drain takes one at a time."""
    spec = find(OBJECTS, "Deployment", deployment)["spec"]
    labels = spec["template"]["metadata"]["labels"]
    budget = find(OBJECTS, "PodDisruptionBudget", deployment)["spec"]
    assert (spec["replicas"], budget["maxUnavailable"]) == (2, 1)
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    # One constraint: a second one, over zones, would make kube-scheduler pass over nodes without zones in scoring both
    [constraint] = pod_of(OBJECTS, deployment)["topologySpreadConstraints"]
    assert constraint["topologyKey"] == "kubernetes.io/hostname"
    assert constraint["matchLabelKeys"] == ["pod-template-hash"]
    for selector in (spec["selector"], budget["selector"], constraint["labelSelector"]):
        assert selector["matchLabels"] == labels


@pytest.mark.parametrize("components", [(), ("cert-manager",)], ids=["giveway's", "cert-manager's"])
def test_the_server_reads_what_the_certificates_are_written_to(components):
    """Certificates are there before the server starts, and are kept while it runs: by giveway, or by cert-manager."""
    objects, started = rendered(*components), containers("giveway-webhook", *components)
    server = started["webhook"]
    options = arguments(server)
    mounts = {
        name: next(mount for mount in each["volumeMounts"] if mount["name"] == "certificates")
        for name, each in started.items()
    }
    directory = options["ca-file"].removesuffix("/ca.crt")
    assert (options["tls-cert-file"], options["tls-private-key-file"]) == (
        f"{directory}/tls.crt",
        f"{directory}/tls.key",
    )
    assert directory.startswith(mounts["webhook"]["mountPath"])
    assert mounts["webhook"]["readOnly"] is True
    if components:
        certificate = find(objects, "Certificate", "giveway-webhook")["spec"]
        [volume] = [each for each in pod_of(objects, "giveway-webhook")["volumes"] if each["name"] == "certificates"]
        assert volume["secret"] == {"secretName": certificate["secretName"]}
        assert certificate["dnsNames"] == service_names("giveway-webhook", options["system-namespace"])
        assert (list(started), "--sync-ca-bundle" in server["args"]) == (["webhook"], True)
        return
    assert list(started) == ["issue-certificates", "webhook", "keep-certificates"]
    issue, keep = started["issue-certificates"], started["keep-certificates"]
    assert keep["args"] == [*issue["args"][:2], "--keep", *issue["args"][2:]]
    assert (arguments(issue)["dir"], arguments(issue)["service"]) == (directory, f"{NAMESPACE}/giveway-webhook")
    assert len({mount["mountPath"] for mount in mounts.values()}) == 1
