"""What people see: kubectl's reading commands against the embedded control plane, with its stand-ins, over TLS."""

import re

import pytest

from tests.clusters.embedded.kubectl import pod, rows

pytestmark = pytest.mark.kubectl


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


def test_watch(kubectl):
    """Get -w shows what there is and every change after it."""
    kubectl("create", "configmap", "a", "--from-literal=k=v")
    watching = kubectl.start("get", "configmaps", "-w")
    lines = [watching.stdout.readline().split()[:2] for _ in range(2)]
    kubectl("create", "configmap", "b", "--from-literal=k=v", "--from-literal=l=w")
    lines.append(watching.stdout.readline().split()[:2])
    watching.kill()
    watching.communicate()
    assert [name for name, _ in lines] == ["NAME", "a", "b"]


def test_describe(kubectl):
    """Describe shows a pod with its class, its conditions and its events."""
    kubectl("apply", "-f", "-", stdin=pod("a", priorityClassName="system-node-critical"))
    output = kubectl.eventually("Successfully assigned", "describe", "pod", "a")
    assert re.search(r"Priority:\s+2000001000\nPriority Class Name:\s+system-node-critical", output)
    assert re.search(r"PodScheduled\s+True", output)
    assert "Allocated resources" in kubectl("describe", "node", "node-1")
