"""Faults of preemptors that may not be together in a zone, or are spread over zones, when nominated side by side."""

from typing import Any

from tests.preemption.building import node
from tests.reconciler.faults.fault import Fault
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import preemptor, victim
from tests.reconciler.harness.scenarios import later, simulated
from webhook.policy.model.values import CAN_BE_PREEMPTED

Json = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
ALIKE = {"labelSelector": {"matchLabels": {"app": "apart"}}, "topologyKey": ZONE}
ANTI_AFFINITY = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [ALIKE]}}}
SPREAD = {"topologySpreadConstraints": [{**ALIKE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]}


def full(*zones: str, grace: int = 0) -> Cluster:
    """Nodes in these zones, each full of three pods, which may go but in zone `kept`; they take so long to end."""
    made = simulated(*(node(f"n{number}", "6", labels={ZONE: zone}) for number, zone in enumerate(zones)))
    for number, zone in enumerate(zones):
        for place in range(3):
            pod = victim(f"v{number}-{place}", f"n{number}", "2", grace=grace)
            pod["metadata"]["annotations"] = {CAN_BE_PREEMPTED: "false" if zone == "kept" else "true"}
            made.ends_after[pod["metadata"]["name"]] = grace
            made.put(pod)
    return made


def coming(made: Cluster, spec: Json, *names: str) -> Cluster:
    """Preemptors that need a node each come at once, with that in their specs."""
    for name in names:
        pod = preemptor(name, "6")
        pod["metadata"]["labels"]["app"] = "apart"
        pod["spec"] |= spec
        made.put(pod)
    return made


def apart_from_one_that_does_not_care() -> Cluster:
    """The first one has anti-affinity, the second one only the label that it is against."""
    made = coming(full("a", "a", grace=10), ANTI_AFFINITY, "p")
    later(2.0, coming, made, {}, "q")
    return made


FAULTS = {
    "apart in one zone": Fault(lambda: coming(full("a", "a"), ANTI_AFFINITY, "p", "q"), 120.0, 3),
    "apart in three zones": Fault(lambda: coming(full(*"aabbcc"), ANTI_AFFINITY, *"pqrst"), 120.0, 9),
    "apart from one that does not care": Fault(apart_from_one_that_does_not_care, 120.0, 3),
    "spread over two zones": Fault(lambda: coming(full("a", "a", "kept"), SPREAD, "p", "q"), 120.0, 3),
}
