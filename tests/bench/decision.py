"""The decision's figures: one decision over all nodes, events, and a snapshot's size and time to build.

Every figure is the best of several runs, as other work on the machine only adds to it. kube-scheduler 1.36 needs
265 ms for one decision over 5000 nodes x 30 pods, and 68 ms over 1000 x 30, on a machine like the one it was
measured on; figures of different machines compare only roughly.
"""

from __future__ import annotations

import gc
import random
import time
from functools import partial
from typing import Any

import msgspec
import numpy as np

from tests.bench.measuring import apart, best, memory
from tests.preemption.building import HOST, NOW, ZONE, Json, as_pod, rules, snapshot_of
from tests.preemption.costs import EVERY, SAVED
from tests.preemption.dense import dense
from webhook.kube.instants import rfc3339
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import POD_DELETION_COST
from webhook.policy.model.preemption import GroupDisruption, PreemptionPolicy, Protection
from webhook.policy.model.victims import EvictionCost, VictimMode, Victims
from webhook.policy.shapes.yaml_nodes import SourcePosition
from webhook.preemption.decision import decide
from webhook.preemption.snapshot.kinds import NODES, PODS
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.rules import Rules, compile_rules, kubernetes_rules

ASKED = {(1000, 30): (5, 68), (5000, 30): (20, 265)}
"""Milliseconds that a decision may take, and that kube-scheduler takes."""


def main() -> None:
    """Print all figures."""
    plain = {size: decisions(*size) for size in ((1000, 30), (5000, 30), (10000, 100))}
    per_pod = {size: plain[size] / (size[0] * size[1]) * 1e6 for size in plain}
    print("growth: " + ", ".join(f"{size[0]} x {size[1]}: {ns:.0f} ns a pod" for size, ns in per_pod.items()))
    apart(large_snapshot)


def decisions(nodes: int, per_node: int) -> float:
    """Time decisions on one size; returns the plain preemptor's milliseconds."""
    cluster = dense(nodes, per_node)
    snapshot = snapshot_of({**cluster, **_volumes([node["metadata"]["name"] for node in cluster["nodes"]])})
    plain = timed(snapshot, cluster["preemptor"], kubernetes_rules())
    notes = ""
    if (nodes, per_node) in ASKED:
        limit, known = ASKED[nodes, per_node]
        notes = f" (at most {limit} asked; kube-scheduler {known}, {known / plain:.0f}x)"
    print(f"{nodes} nodes x {per_node} pods, all examined: {plain:.1f} ms{notes}")
    reading(snapshot, cluster["preemptor"])
    for name, preemptor, by in variants(cluster["preemptor"]):
        took = timed(snapshot, preemptor, by)
        print(f"  with {name}: {took:.1f} ms, {took / plain:.2f}x")
    grouped(cluster)
    costly(cluster)
    return plain


def grouped(cluster: Json) -> None:
    """Time decisions among groups of 1 to 64 pods that go whole, against the same policy over single pods."""
    dice, left = random.Random(1), 0
    for pod in dice.sample(cluster["pods"], len(cluster["pods"])):
        if not left:
            left, name = dice.randint(1, 64), f"set-{dice.getrandbits(60):x}"
        left -= 1
        pod["metadata"]["labels"] |= {"jobset.sigs.k8s.io/jobset-name": name}
    snapshot = snapshot_of(cluster)
    base, whole = (
        timed(snapshot, cluster["preemptor"], rules(groups=disruption))
        for disruption in GroupDisruption
        if disruption is not GroupDisruption.NEVER
    )
    print(f"  with groups of 1 to 64 that go whole: {whole:.1f} ms, {whole / base:.2f}x single pods (at most 2 asked)")


def costly(cluster: Json) -> None:
    """Time decisions with all keys of `victims.cost`, and with 50 pod updates before each, against none of them."""
    dice = random.Random(1)
    for pod in cluster["pods"]:
        _dress(pod, dice)
    by = {cost: rules(cost=cost) for cost in (EvictionCost(), EVERY)}
    snapshot, preemptor = snapshot_of(cluster, by[EVERY]), as_pod(cluster["preemptor"])
    evicted = np.random.default_rng(1).integers(0, 3, snapshot.pods.rows)
    some = [msgspec.convert(pod, Pod) for pod in dice.sample(cluster["pods"], 50)]
    for updates, words in (([], ""), (some, ", 50 pod updates before each")):
        took = dict.fromkeys(by, float("inf"))
        for cost in [*by] * 30:  # in turns, as the machine is not always as fast
            for pod in updates:
                snapshot.put(PODS, pod)
            counted = evicted.copy()  # counted each time
            one = best(lambda by=by[cost], gone=counted: decide(snapshot, preemptor, by, NOW, evicted=gone), 1)
            took[cost] = min(took[cost], one)
        base, every = took.values()
        print(f"  with all keys of cost{words}: {every:.1f} ms, {every / base:.2f}x none (at most 1.3 asked)")


def _dress(pod: Json, dice: random.Random) -> None:
    """Give the pod what the keys look at; every fourth has a checkpoint of its own."""
    annotations = pod["metadata"].setdefault("annotations", {})
    if dice.random() < 0.3:
        annotations[POD_DELETION_COST] = str(dice.randint(-100, 100))
    if dice.random() < 0.25:
        annotations[SAVED] = rfc3339(NOW - dice.randrange(7200))
    pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}] if dice.random() < 0.9 else []
    pod["spec"]["terminationGracePeriodSeconds"] = dice.choice([5, 30, 60])


def reading(snapshot: Snapshot, preemptor: Json) -> None:
    """Time making all candidates of a decision, with their victims."""
    pod = as_pod(preemptor)
    decisions = [decide(snapshot, pod, kubernetes_rules(), NOW) for _ in range(5)]
    took = min(best(lambda made=made: made.candidates, 1) for made in decisions)
    print(f"  reading all its candidates: {took:.1f} ms (at most 80 asked for 150 000 pods)")


def _volumes(hosts: list[str]) -> Json:
    """A claim that waits for its first consumer, and 10 000 volumes, every tenth a free one of the claim's class."""
    late = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    asked = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"]}
    claim = {"metadata": {"name": "data", "namespace": "team-a", "uid": "data"}}
    return {
        "storageClasses": [{"metadata": {"name": "local"}, **late}],
        "persistentVolumeClaims": [{**claim, "spec": {**asked, "resources": {"requests": {"storage": "5Gi"}}}}],
        "persistentVolumes": [
            _volume(number, HOST, hosts[number % len(hosts)], **asked)
            if number % 10 == 0
            else _volume(number, ZONE, f"z{number % 3 + 1}", **asked | {"storageClassName": f"other-{number % 9}"})
            for number in range(10_000)
        ],
    }


def _volume(number: int, key: str, value: str, **spec: Any) -> Json:
    """A volume that the nodes with this label reach."""
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    reach = {"capacity": {"storage": "10Gi"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}
    return {
        "metadata": {"name": f"volume-{number:05d}"},
        "spec": {**spec, **reach},
        "status": {"phase": "Available"},
    }


def variants(preemptor: Json) -> list[tuple[str, Json, Rules]]:
    """Preemptors that ask for more, and rules that ask more."""
    web = {"labelSelector": {"matchLabels": {"app": "web"}}}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    spread = {"maxSkew": 5000, "whenUnsatisfiable": "DoNotSchedule", "topologyKey": ZONE, **web}
    port = {**preemptor["spec"]["containers"][0], "ports": [{"containerPort": 80, "hostPort": 80}]}
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    asking: dict[str, Json] = {
        "pod affinity by zone": {"affinity": {"podAffinity": {required: [{"topologyKey": ZONE, **web}]}}},
        "pod anti-affinity by host": {"affinity": {"podAntiAffinity": {required: [{"topologyKey": HOST, **web}]}}},
        "topology spread by zone": {"topologySpreadConstraints": [spread]},
        "topology spread by host": {"topologySpreadConstraints": [{**spread, "topologyKey": HOST, "maxSkew": 9}]},
        "a host port": {"containers": [port]},
        "a claim, among 10 000 volumes": {"volumes": [claim]},
    }
    made = [
        (name, {**preemptor, "spec": {**preemptor["spec"], **spec}}, kubernetes_rules())
        for name, spec in asking.items()
    ]
    victims, protection = Victims(mode=VictimMode.OPT_OUT), Protection(default=60)
    strict = PreemptionPolicy(name="bench", source=SourcePosition(), victims=victims, protection=protection)
    return [*made, ("a strict policy with protection", preemptor, compile_rules(strict))]


def timed(snapshot: Snapshot, preemptor: Json, by: Rules) -> float:
    """The best of at least 9 decisions and one second of them, in milliseconds."""
    pod = as_pod(preemptor)
    first = best(lambda: decide(snapshot, pod, by, NOW), 3)
    return best(lambda: decide(snapshot, pod, by, NOW), max(9, int(1e3 / first)))


def large_snapshot() -> None:
    """150 000 pods from JSON, page by page, then single events; in a process of its own, to measure its memory."""
    cluster = dense(5000, 30)
    encoded = {kind: [msgspec.json.encode(item) for item in cluster[kind]] for kind in ("nodes", "pods")}
    del cluster
    gc.collect()
    before = memory()["VmRSS"]
    snapshot, begun = Snapshot(), time.perf_counter()
    for kind in (NODES, PODS):
        decoder = msgspec.json.Decoder(kind.type_)
        for text in encoded[kind.field]:
            snapshot.put(kind, decoder.decode(text))
    took = time.perf_counter() - begun
    count, read = len(encoded["pods"]), sum(map(len, encoded["pods"])) / 1e6
    print(f"snapshot of {count} pods from {read:.0f} MB of JSON: {took:.1f} s (at most 6 asked)")
    print(f"  resident beside that JSON: {memory()['VmRSS'] - before:.0f} MB (at most 250 asked)")
    events(snapshot, [decoder.decode(text) for text in encoded["pods"][:8000]])


def events(snapshot: Snapshot, some: list[Pod]) -> None:
    """Time single pod events on the large snapshot."""
    chunks = [some[start : start + 500] for start in range(0, len(some), 500)]
    for name, event in (
        ("updated", partial(snapshot.put, PODS)),
        ("removed", lambda pod: snapshot.remove(PODS, f"{pod.metadata.namespace}/{pod.metadata.name}")),
        ("added", partial(snapshot.put, PODS)),
    ):
        shortest = min(best(lambda chunk=chunk, event=event: [event(pod) for pod in chunk], 1) for chunk in chunks)
        print(f"a pod {name}: {shortest / 500 * 1e3:.1f} us (at most 30 asked)")
