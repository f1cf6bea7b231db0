"""What the keys of `victims.cost` cost a decision: all of them on, against the same policy without, 5000 x 30.

Once with nothing changed between decisions, and once with 50 pod updates before each: as many as a busy cluster has
between two decisions. The very first decision puts every node in order.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np

from tests.bench.measuring import best
from tests.preemption.building import NOW, as_pod, snapshot_of
from tests.preemption.costs import EVERY, SAVED
from tests.preemption.dense import dense
from webhook.kube.instants import rfc3339
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import POD_DELETION_COST
from webhook.policy.model.cost import EvictionCost
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.victims import VictimMode, Victims
from webhook.policy.shapes.yaml_nodes import SourcePosition
from webhook.preemption.decision import decide
from webhook.preemption.snapshot.kinds import PODS
from webhook.preemption.victims.rules import Rules, compile_rules

Json = dict[str, Any]
_UPDATES = 50
_TURNS = 60


def main() -> None:
    """Print all figures."""
    data, dice = dense(5000, 30), random.Random(1)
    for pod in data["pods"]:
        _dress(pod, dice)
    plain, costly = _rules(EvictionCost()), _rules(EVERY)
    snapshot = snapshot_of(data, costly)
    evicted = np.random.default_rng(1).integers(0, 3, snapshot.pods.rows)
    preemptor = as_pod(data["preemptor"])
    some = [msgspec.convert(pod, Pod) for pod in dice.sample(data["pods"], _UPDATES)]

    def decided(rules: Rules) -> None:
        assert decide(snapshot, preemptor, rules, NOW, evicted=evicted.copy()).selected  # counted each time

    first = best(lambda: decided(costly), 1)
    decided(plain)

    def shortest(updates: list[Pod]) -> tuple[float, float]:
        """The shortest decision of either, in milliseconds; they take turns, as the machine is not always as fast."""
        took = {plain: float("inf"), costly: float("inf")}
        for rules in [plain, costly] * _TURNS:
            for pod in updates:
                snapshot.put(PODS, pod)
            took[rules] = min(took[rules], best(lambda rules=rules: decided(rules), 1))
        return took[plain], took[costly]

    base, every = shortest([])
    print(f"5000 nodes x 30 pods, a policy without keys: {base:.1f} ms")
    print(f"  with all keys: {every:.1f} ms, {every / base:.2f}x (at most 1.3 asked); the very first: {first:.0f} ms")
    base, every = shortest(some)
    print(f"  after {_UPDATES} pod updates each: {every:.1f} ms, {every / base:.2f}x (at most 1.3 asked)")


def _dress(pod: Json, dice: random.Random) -> None:
    """Give the pod what the keys look at; every fourth has a checkpoint of its own."""
    annotations = pod["metadata"].setdefault("annotations", {})
    if dice.random() < 0.3:
        annotations[POD_DELETION_COST] = str(dice.randint(-100, 100))
    if dice.random() < 0.25:
        annotations[SAVED] = rfc3339(NOW - dice.randrange(7200))
    if dice.random() < 0.3:
        pod["metadata"]["labels"] |= {"jobset.sigs.k8s.io/jobset-name": f"set-{dice.randrange(2000)}"}
    pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}] if dice.random() < 0.9 else []
    pod["spec"]["terminationGracePeriodSeconds"] = dice.choice([5, 30, 60])


def _rules(cost: EvictionCost) -> Rules:
    victims = Victims(mode=VictimMode.OPT_OUT, cost=cost)
    return compile_rules(PreemptionPolicy(name="bench", source=SourcePosition(), victims=victims))
