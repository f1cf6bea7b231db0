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
    for port in container.get("ports", ()):
        assert params[{"https": "secure_port", "health": "health_port"}[port["name"]]] == port["containerPort"]
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


def test_the_server_reads_what_cert_manager_writes():
    """The Secret of the certificate is mounted where the server looks, with the names that the API server asks for."""
    objects, started = rendered("cert-manager"), containers("giveway-webhook", "cert-manager")
    server, certificate = started["webhook"], find(objects, "Certificate", "giveway-webhook")["spec"]
    [volume] = [each for each in pod_of(objects, "giveway-webhook")["volumes"] if each["name"] == "certificates"]
    [mount] = [each for each in server["volumeMounts"] if each["name"] == "certificates"]
    assert volume["secret"] == {"secretName": certificate["secretName"]}
    assert arguments(server)["ca-file"] == f"{mount['mountPath']}/ca.crt"
    assert certificate["dnsNames"] == service_names("giveway-webhook", arguments(server)["system-namespace"])
    assert (list(started), "--sync-ca-bundle" in server["args"]) == (["webhook"], True)


def test_the_containers_of_certificates_do_the_same():
    """One issues before the server starts, the other renews while it runs: in one directory, for one Service."""
    issue, _, keep = containers("giveway-webhook").values()
    assert keep["args"] == [*issue["args"][:2], "--keep", *issue["args"][2:]]
    assert arguments(issue)["service"] == f"{NAMESPACE}/giveway-webhook"
