"""Cluster files: what is written and read, what is left out, and what a file with a fault is answered with."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from tests.simulation.clusters import POLICY, large, loaded, node, pod, policy_text, write
from webhook.cli.main import main
from webhook.clusters.simulated.objects import BY_KIND, KINDS, kind_of
from webhook.kube.instants import epoch, rfc3339
from webhook.kube.objects.pod import Pod
from webhook.policy.model.values import PLAN
from webhook.preemption.decision import decide
from webhook.preemption.snapshot.kinds import SNAPSHOT_KINDS
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.rules import kubernetes_rules
from webhook.simulation.cluster_file.format import ClusterFileError, read_cluster
from webhook.simulation.cluster_file.redacting import Anonymizer, redact
from webhook.simulation.judgeable import words_of

SECRET = "correct-horse"
RECORDED = Path(__file__).parents[1] / "preemption" / "data"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    file = tmp_path / "small.gz"
    write(file, large(3, 30, 2))
    return file


def test_what_is_written_is_read(small):
    """Every object comes back as it was, with when it was taken and which annotations it has."""
    found = read_cluster([small])
    assert {kind.name: len(found.of(kind.name)) for kind in KINDS if found.of(kind.name)} == {
        "Namespace": 1,
        "PriorityClass": 4,
        "Node": 4,
        "ReplicaSet": 2,
        "Pod": 32,
    }
    one: Pod = found.of("Pod")["default/w00000-003"]
    assert (one.spec.node_name, one.spec.priority, one.status.phase) == ("n00000", 10, "Running")
    assert found.annotations is not None
    assert PLAN in found.annotations


def changed(small: Path, change) -> bytes:
    return gzip.compress(change(gzip.decompress(small.read_bytes())))


def at_line(number: int, text: bytes):
    def change(content: bytes) -> bytes:
        lines = content.splitlines(keepends=True)
        lines[number] = text
        return b"".join(lines)

    return change


HEADER = b'{"format":"giveway.dev/snapshot","version":%d,"takenAt":"2026-01-01T00:00:00Z","giveway":"9.0"}\n'
FAULTS = {
    "cut-between-lines": (lambda c: b"".join(c.splitlines(keepends=True)[:-1]), "cut off after 43 objects"),
    "cut-in-a-line": (lambda c: c[: len(c) // 2], "cut off after"),
    "newer": (
        at_line(0, HEADER % 2),
        "is of version 2, and this giveway reads version 1: use the giveway that wrote it (9.0)",
    ),
    "older": (at_line(0, HEADER % 0), "version 0, and this giveway reads version 1"),
    "other-format": (lambda c: c.replace(b"giveway.dev/snapshot", b"example.com/snapshot"), "of format"),
    "tampered": (
        lambda c: c.replace(b'"10"', b'"99"', 1).replace(b"n00001", b"n00002", 1),
        "was changed after it was written",
    ),
    "unknown-kind": (at_line(3, b'["Secret",{}]\n'), "kind 'Secret', which no snapshot has"),
    "broken-object": (at_line(3, b'["Node",{"metadata":7}]\n'), "object 3 cannot be read"),
    "no-json": (at_line(3, b"\xff\xfe\n"), "object 3 cannot be read"),
    "goes-on": (lambda c: c + b'["Node",{}]\n', "was changed after it was written"),
    "header-of-nothing": (lambda _: b'{"format":7}\n', "its first line cannot be read"),
    "empty": (lambda _: b"", "is empty"),
    "blank": (lambda _: b"\n\n", "is empty"),
    "not-json": (lambda _: b"hello\n", "neither a snapshot nor a list"),
    "no-kind": (lambda _: b"{}\n", "no kind"),
    "long-line": (at_line(3, b'["Node","' + b"x" * (9 << 20) + b'"]\n'), "a line of more than 8 MiB"),
    "bomb": (at_line(3, (b'["Node",{"x":"' + b"x" * (7 << 20) + b'"}]\n') * 20), "times its size when it is unpacked"),
    "deep": (at_line(3, b'["Node",' + b"[" * 100_000 + b"]\n"), "object 3 cannot be read"),
}


@pytest.mark.parametrize(("change", "said"), FAULTS.values(), ids=FAULTS.keys())
def test_a_file_with_a_fault_ends_with_one_sentence(small, tmp_path, change, said):
    """What is wrong is said in one sentence that names the file; nothing of it is used."""
    bad = tmp_path / "bad.gz"
    bad.write_bytes(changed(small, change))
    with pytest.raises(ClusterFileError) as raised:
        read_cluster([bad])
    assert said in str(raised.value)
    assert str(bad) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_cut_or_flipped_packed_file_is_noticed(small, tmp_path):
    """A download that ended early, or a byte that was changed, is no cluster."""
    content, bad = small.read_bytes(), tmp_path / "bad.gz"
    for damaged in (content[:-5], content[: len(content) // 2], content[:300] + b"\0" + content[301:]):
        bad.write_bytes(damaged)
        with pytest.raises(ClusterFileError, match=r"cut off|damaged|changed|cannot be read"):
            read_cluster([bad])


@pytest.mark.parametrize(
    "content", [b"[" * 100, HEADER % 1 + b'["Node",{"metadata":{"name":"a"}}]\n' * 9], ids=["list", "own"]
)
def test_a_file_larger_than_any_cluster_is_not_read_to_its_end(tmp_path, monkeypatch, content):
    """Also one that is not packed, so that it cannot fill the memory."""
    monkeypatch.setattr("webhook.simulation.cluster_file.format._MOST_BYTES", 99)
    (tmp_path / "s").write_bytes(content)
    with pytest.raises(ClusterFileError, match="GiB, which no cluster has"):
        read_cluster([tmp_path / "s"])


def test_a_missing_file_and_two_cluster_files_are_refused(small, tmp_path):
    """There is one sentence for a file that is not there, and for two clusters at once."""
    with pytest.raises(ClusterFileError, match="No such file"):
        read_cluster([tmp_path / "none"])
    with pytest.raises(ClusterFileError, match="a whole cluster by itself"):
        read_cluster([small, small])


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_lists_of_kubectl_are_read(tmp_path, packed):
    """Lists of one kind and of mixed kinds, in several files, packed or not."""
    nodes = {"kind": "NodeList", "items": [node("a", "4")]}
    mixed = {"kind": "List", "items": [{"kind": "Pod", **pod("p", "1")}, {"kind": "Secret", "metadata": {"name": "s"}}]}
    files = []
    for number, body in enumerate((nodes, mixed)):
        files.append(tmp_path / f"{number}.json")
        text = json.dumps(body, indent=number or None).encode()
        files[-1].write_bytes(gzip.compress(text) if packed else text)
    found = read_cluster(files)
    assert (list(found.of("Node")), list(found.of("Pod"))) == (["a"], ["default/p"])
    assert found.annotations is None
    with pytest.raises(ClusterFileError, match="no nodes"):
        read_cluster(files[1:])


def test_whose_pod_group_it_is():
    """Of kinds with one name the API group says which it is."""
    versions = ("scheduling.k8s.io/v1alpha2", "scheduling.x-k8s.io/v1alpha1", "scheduling.volcano.sh/v1beta1")
    titles = ["PodGroup", "CoschedulingPodGroup", "VolcanoPodGroup"]
    assert [kind_of(version, "PodGroup").name for version in versions] == titles


def test_nothing_secret_is_written():
    """No environment, command, argument, image, message or annotation that no policy reads, of a pod or a template."""
    made = pod("p", "1", on="n", annotations={"note": SECRET, PLAN: "{}"})
    made["spec"]["containers"][0] |= {
        "image": f"registry/{SECRET}",
        "env": [{"name": "PASSWORD", "value": SECRET}],
        "command": ["run", SECRET],
        "args": [SECRET],
        "ports": [{"containerPort": 80, "name": SECRET}],
    }
    made["spec"]["volumes"] = [{"name": SECRET, "secret": {"secretName": SECRET}}]
    made["status"]["conditions"].append({"type": "Odd", "status": "True", "message": SECRET, "reason": SECRET})
    made["status"]["message"] = SECRET
    template = {"metadata": {"name": "d"}, "spec": {"template": {"spec": made["spec"]}}}
    for kind, body in (("Pod", made), ("Deployment", template)):
        item = msgspec.json.decode(json.dumps(body), type=BY_KIND[kind].type)
        text = msgspec.json.encode(redact(item, {PLAN})).decode()
        assert SECRET not in text
        assert (PLAN in text) == (kind == "Pod")


def test_names_of_policies_stay_and_each_file_has_other_names_of_its_own():
    """An owner's name still begins those of its pods; no other name is left, numbers are no names."""
    words = words_of(
        loaded(policy_text(victims={"mode": "opt-in", "pairs": [{"victims": {"namespaces": ["default"]}}]}))
    )
    change = Anonymizer(words)
    body = pod("web-5d4f-abc", "1", on="node-1", owner=("ReplicaSet", "web-5d4f"), labels={"team": "gold", "gen": "12"})
    body["spec"]["schedulingGroup"] = {"podGroupName": "web-gold"}
    other = change(BY_KIND["Pod"], msgspec.convert(body, Pod))
    meta = other.metadata
    assert (meta.namespace, meta.labels["gen"], other.spec.priority_class_name) == ("default", "12", "low")
    assert meta.name.startswith(f"{meta.owner_references[0].name}-")
    assert not any(name in msgspec.json.encode(other).decode() for name in ("web", "5d4f", "gold", "node-1"))
    assert Anonymizer(words).text("web") != change.text("web")


@pytest.mark.parametrize(
    "name",
    [
        *(f"devices/{profile}.jsonl.xz" for profile in ("shared", "partitionable", "consumable", "matchattr")),
        *(f"devices/{profile}.jsonl.xz" for profile in ("firstavailable", "network")),
        *(f"{profile}.jsonl.gz" for profile in ("affinity", "antiaffinity", "spread", "placement", "pdb", "volumes")),
    ],
)
def test_a_cluster_under_other_names_is_decided_alike(name: str) -> None:
    """What holds between pods, nodes, budgets, claims and devices holds under other names."""
    with (lzma.open if name.endswith("xz") else gzip.open)(RECORDED / name) as rows:
        inputs = [json.loads(row)["input"] for row in rows]
    for data in inputs:
        change, snapshots = Anonymizer(), (Snapshot(), Snapshot())
        for kind in SNAPSHOT_KINDS:
            for body in data.get(kind.field) or ():
                item = msgspec.convert(body, kind.type_)
                other = change(BY_KIND[kind.resource.kind], item)
                assert other.metadata.name != item.metadata.name or kind.field == "priorityClasses"
                for snapshot, made in zip(snapshots, (item, other), strict=True):
                    snapshot.put(kind, made)
        preemptor = msgspec.convert(data["preemptor"], Pod)
        given = zip(snapshots, (preemptor, change(BY_KIND["Pod"], preemptor)), strict=True)
        decided = [decide(snapshot, incoming, kubernetes_rules(), 0.0).candidates for snapshot, incoming in given]
        own, others = ({one.node: {victim.name for victim in one.victims} for one in found} for found in decided)
        assert others == {change.text(node): set(map(change.text, names)) for node, names in own.items()}
        if own:
            return
    raise AssertionError("no preemptor of these needs victims")


def test_the_command_says_what_is_wrong(tmp_path):
    """A cluster that cannot be reached leaves no file behind."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("{}")
    file = tmp_path / "s.gz"
    result = CliRunner().invoke(main, ["snapshot", str(file), "--kubeconfig", str(kubeconfig)])
    assert result.exit_code == 2
    assert "Error" in result.output
    assert not list(tmp_path.glob("*.gz*"))


def decided(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["decide", *arguments], catch_exceptions=False)


@pytest.fixture
def policies(tmp_path: Path) -> str:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "p.yaml").write_text(POLICY)
    return str(tmp_path / "policies")


def test_decide_reads_cluster_files_and_lists(small, tmp_path, policies):
    """For every pod that waits, or for those that are named; the time is that of the file."""
    result = decided(str(small), "--policies", policies)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["name"] for row in rows] == ["default/p00000", "default/p00001"]
    assert all(len(row["candidates"][0]["victims"]) == 2 for row in rows)
    lists = {"kind": "List", "items": [{"kind": "Node", **node("a", "2")}, {"kind": "Pod", **pod("p", "1")}]}
    file = tmp_path / "list.json"
    file.write_text(json.dumps(lists, indent=1))
    row = json.loads(decided(str(file), "--pod", "default/p").stdout)
    assert (row["name"], row["fits"]) == ("default/p", ["a"])
    assert "there is no pod default/q" in decided(str(small), "--pod", "default/q").output


def test_people_read_of_a_pod_of_a_cluster_file(small, policies):
    """The same words as for a live pod; a policy that reads what is not there cannot be judged."""
    arguments = [str(small), "--pod", "default/p00000", "--policies", policies, "--explain"]
    result = decided(*arguments)
    assert result.exit_code == 0
    assert "by policy high Plan: evict 2 pods for room on" in " ".join(result.output.split())
    reads = {"mode": "opt-in", "annotations": {"preemptible": ["x/y"]}}
    Path(policies, "p.yaml").write_text(policy_text(victims=reads))
    result = decided(*arguments)
    assert "policy high cannot be judged: it reads the annotation x/y of pods" in result.output
    assert result.exit_code == 1


def test_a_list_is_as_old_as_what_last_happened_in_it(tmp_path):
    """So the same files give the same simulation at any time; what is yet to come does not count."""
    made = {"kind": "Node", "metadata": {"name": "n1", "creationTimestamp": "2026-01-02T00:00:00Z"}}
    leaving = {"name": "p", "namespace": "d", "deletionTimestamp": "2026-09-09T00:00:00Z"}
    other = {"kind": "Pod", "metadata": leaving, "status": {"startTime": "2026-01-03T00:00:00Z"}}
    path = tmp_path / "lists.json"
    path.write_text(json.dumps({"kind": "List", "items": [made, other]}))
    assert rfc3339(read_cluster([path]).taken_at) == "2026-01-03T00:00:00Z"
    later = epoch("2026-01-04T00:00:00Z")
    assert read_cluster([path], now=later).taken_at == later
    with pytest.raises(ClusterFileError, match="2026-01-02T00:00:00Z is before what the files tell of"):
        read_cluster([path], now=epoch("2026-01-02T00:00:00Z"))


def test_a_beginning_that_cannot_be(small, policies):
    """`--now` is an instant, and nothing in the file is newer."""
    for now, words in (("noon", "'noon'"), ("2001-01-01T00:00:00Z", "is before what the files tell of")):
        result = CliRunner().invoke(main, ["simulate", str(small), "--policies", policies, "--now", now])
        assert result.exit_code == 2
        assert words in result.output
