"""Random clusters whose nodes are in zones, out of which pods keep each other: victims are on several nodes."""

import random

from msgspec.structs import replace

from tests.preemption.building import ZONE
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import Json
from webhook.policy.model.values import MARK


def zones(made: Cluster, seed: int) -> None:
    """Nodes in two zones; preemptors, and some other pods, want to be apart from pods, or spread evenly."""
    dice = random.Random(f"zones {seed}")
    for host in made.nodes:
        host["metadata"].setdefault("labels", {})[ZONE] = dice.choice(("a", "b"))
    victims = replace(made.policy.victims, across_nodes=True)
    made.policy = replace(made.policy, victims=victims)

    def dress(pod: Json) -> None:
        labels = pod["metadata"]["labels"]
        if MARK in labels:
            labels["app"] = dice.choice(("a", "b", "c", "d"))
            if dice.random() < 0.5:
                _apart(pod, dice.choice(("a", "b", "c")))
            elif dice.random() < 0.5:
                _spread(pod, dice.randint(1, 2))
        elif dice.random() < 0.15:
            _apart(pod, dice.choice(("a", "d")))

    def came(old: Json | None, new: Json | None) -> None:
        """A nomination keeps nobody out of a zone: whoever is bound may stand in the way, whatever its priority."""
        if new is not None and new["spec"].get("nodeName") and not (old and old["spec"].get("nodeName")):
            for pod in made.pods.values():
                if _keeps_out(new, pod) or _keeps_out(pod, new):
                    made.outcomes.outside(f"{new['metadata']['name']} counts in its zone", pod["metadata"]["uid"])

    made.dresses.append(dress)
    made.changes.append(came)


def _apart(pod: Json, app: str) -> None:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": app}}}
    pod["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _spread(pod: Json, skew: int) -> None:
    own = {"labelSelector": {"matchLabels": {"app": pod["metadata"]["labels"]["app"]}}}
    constraint = {"maxSkew": skew, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", **own}
    pod["spec"]["topologySpreadConstraints"] = [constraint]


def _keeps_out(one: Json, other: Json) -> bool:
    """Whether a pod counts others such as this one in its zone."""
    terms = one["spec"].get("affinity", {}).get("podAntiAffinity", {})
    rows = [*one["spec"].get("topologySpreadConstraints", ()), *(row for some in terms.values() for row in some)]
    labels = other["metadata"]["labels"].items()
    return any(row["labelSelector"]["matchLabels"].items() <= labels for row in rows)
