"""What is kept of groups from decision to decision: it says the same as a snapshot that is made afresh."""

import random

import msgspec
import pytest

from tests.preemption.building import NOW, as_pod, node, pod, pod_group, rules, snapshot_of
from webhook.kube.objects.scheduling import PodGroup
from webhook.policy.model.preemption import GroupDisruption
from webhook.policy.model.victims import EvictionCost
from webhook.preemption.decision import decide, victims_needed
from webhook.preemption.snapshot.kinds import POD_GROUPS, PODS
from webhook.preemption.snapshot.pod_groups import POD_GROUP

COSTLY = rules(groups=GroupDisruption.GROUP, cost=EvictionCost(deletion_cost=True))
POLICIES = {
    "whole": rules(groups=GroupDisruption.GROUP),
    "by its PodGroup": rules(),
    "whole, with costs": COSTLY,
}
PREEMPTOR = as_pod(pod("p", priority=100, cpu="6"))


def group(dice, name):
    """A PodGroup of any mode, priority and minimum."""
    minimum = dice.randint(1, 4) if dice.random() < 0.7 else 0
    mode = dice.choice(("Pod", "PodGroup", None, None))
    return pod_group(name, minimum, disruptionMode=mode, priority=dice.choice((None, None, 5, 30)))


def running(dice, number, nodes):
    """A pod of some group, or of none."""
    of = dice.choice(("", "a", "b", "c", "d"))
    on, started = f"n{dice.randrange(nodes)}", dice.randint(1, 9999)
    made = pod(f"p-{number}", on=on, priority=dice.choice((0, 10, 20)), cpu="1", started=started, group=of)
    cost = str(dice.randint(0, 3))
    made["metadata"]["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": cost}
    return made


@pytest.mark.parametrize("seed", range(20))
def test_changes_end_where_a_fresh_snapshot_starts(seed):
    """Pods change their group and node, PodGroups their mode: each policy decides as if it saw all this at first."""
    dice, nodes = random.Random(seed), 4
    data = {"nodes": [node(f"n{number}", "8") for number in range(nodes)], "pods": [], "podGroups": []}
    pods = {number: running(dice, number, nodes) for number in range(20)}
    groups = {name: group(dice, name) for name in "abcd"}
    kept = snapshot_of(data | {"pods": list(pods.values()), "podGroups": list(groups.values())}, COSTLY)
    for _ in range(12):
        for _ in range(dice.randint(1, 3)):
            if dice.random() < 0.3:
                name = dice.choice("abcd")
                groups[name] = group(dice, name)
                kept.put(POD_GROUPS[POD_GROUP], msgspec.convert(groups[name], PodGroup))
            else:
                number = dice.randrange(20)
                pods[number] = running(dice, number, nodes)
                kept.put(PODS, as_pod(pods[number]))
        fresh = snapshot_of(data | {"pods": list(pods.values()), "podGroups": list(groups.values())}, COSTLY)
        for by in POLICIES.values():
            assert shown(decide(kept, PREEMPTOR, by, NOW)) == shown(decide(fresh, PREEMPTOR, by, NOW))
            assert needed(kept, by) == needed(fresh, by)


def shown(decision):
    """All candidates with their victims and what they are compared by."""
    victims = {one.node: sorted(victim.name for victim in one.victims) for one in decision.candidates}
    return decision.equally_good, victims, decision.scores(4)


def needed(snapshot, by):
    """Whom of every second pod the preemptor needs on the first node."""
    names = [f"p-{number}" for number in range(0, 20, 2)]
    rows = snapshot.pod_rows([f"default/{name}" for name in names])
    found = victims_needed(snapshot, PREEMPTOR, "n0", rows, rules=by)
    return sorted(snapshot.pods.names[row] for row in found.tolist())
