"""What people see: kubectl's reading commands against the embedded control plane, with its stand-ins, over TLS."""

import re
import time

import pytest

from tests.clusters.embedded.kubectl import pod, rows

pytestmark = pytest.mark.kubectl


def test_api_resources(kubectl):
    """api-resources lists what is served, with short names and scope."""
    listed = {tuple(line.split()) for line in kubectl("api-resources").splitlines()}
    assert ("pods", "po", "v1", "true", "Pod") in listed
    assert ("priorityclasses", "pc", "scheduling.k8s.io/v1", "false", "PriorityClass") in listed
    assert ("poddisruptionbudgets", "pdb", "policy/v1", "true", "PodDisruptionBudget") in listed


def test_version(kubectl):
    """Version names the Kubernetes version whose behaviour is shown."""
    assert kubectl.json("version")["serverVersion"]["minor"] == "36"


def test_get_pods(kubectl):
    """Get shows the columns people know, more of them with -o wide."""
    kubectl("apply", "-f", "-", stdin=pod("a"))
    output = kubectl.eventually("Running", "get", "pods")
    assert output.splitlines()[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert rows(output)[0][:4] == ["a", "1/1", "Running", "0"]
    wide = kubectl("get", "pods", "-o", "wide")
    assert re.split(r"\s{2,}", wide.splitlines()[0]) == [
        "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED NODE", "READINESS GATES",
    ]  # fmt: skip
    assert rows(wide)[0][6] in ("node-1", "node-2")
    assert "kind: Pod" in kubectl("get", "pod", "a", "-o", "yaml")


@pytest.mark.parametrize(
    ("kind", "headings"),
    [
        ("nodes", "NAME STATUS ROLES AGE VERSION"),
        ("namespaces", "NAME STATUS AGE"),
        ("priorityclasses", "NAME VALUE GLOBAL-DEFAULT AGE PREEMPTIONPOLICY"),
        ("clusterroles", "NAME AGE"),
    ],
)
def test_headings(kubectl, kind, headings):
    """The kinds that people look at have their own columns, the others name and age."""
    assert " ".join(kubectl("get", kind).splitlines()[0].split()) == headings


def test_selectors(kubectl):
    """Get narrows by labels and by fields."""
    for name in ("a", "b", "c"):
        kubectl("create", "-f", "-", stdin=pod(name))
    names = ("get", "pods", "-o", "name")
    assert kubectl(*names, "-l", "app in (a,b),app!=b") == "pod/a\n"
    assert kubectl(*names, "--field-selector", "metadata.name=b") == "pod/b\n"
    kubectl.eventually("Running", "get", "pod", "c")
    assert "pod/c" in kubectl(*names, "--field-selector", "status.phase=Running")
    assert kubectl(*names, "--field-selector", "status.phase=Failed") == ""
    output = kubectl(*names, "--field-selector", "spec.colour=red", code=1)
    assert "field label not supported: spec.colour" in output


def test_chunks(kubectl):
    """A list in chunks is the same list."""
    for name in "abcde":
        kubectl("create", "configmap", name)
    whole = kubectl("get", "configmaps", "-o", "name")
    assert kubectl("get", "configmaps", "-o", "name", "--chunk-size=2") == whole


def read_lines(process, count):
    lines = [process.stdout.readline().split()[:3] for _ in range(count)]
    process.kill()
    process.communicate()
    return lines


def test_watch(kubectl):
    """Get -w shows what there is and every change after it."""
    kubectl("create", "configmap", "a", "--from-literal=k=v")
    watching = kubectl.start("get", "configmaps", "-w")
    lines = [watching.stdout.readline().split()[:2] for _ in range(2)]
    kubectl("create", "configmap", "b", "--from-literal=k=v", "--from-literal=l=w")
    lines += [line[:2] for line in read_lines(watching, 1)]
    assert [name for name, _ in lines] == ["NAME", "a", "b"]


def test_watch_only(kubectl):
    """Get --watch-only shows changes alone, deletions too."""
    kubectl("create", "configmap", "a")
    watching = kubectl.start("get", "configmaps", "--watch-only", "--output-watch-events")
    time.sleep(0.5)
    kubectl("create", "configmap", "b")
    kubectl("delete", "configmap", "b")
    lines = [line[:2] for line in read_lines(watching, 3)]
    assert lines == [["EVENT", "NAME"], ["ADDED", "b"], ["DELETED", "b"]]


def test_describe(kubectl):
    """Describe shows a pod with its class, its conditions and its events."""
    kubectl("apply", "-f", "-", stdin=pod("a", priorityClassName="system-node-critical"))
    output = kubectl.eventually("Successfully assigned", "describe", "pod", "a")
    assert re.search(r"Priority:\s+2000001000\nPriority Class Name:\s+system-node-critical", output)
    assert re.search(r"PodScheduled\s+True", output)
    assert re.search(r"Node-Selectors:\s+<none>", output)
    assert "Allocated resources" in kubectl("describe", "node", "node-1")
