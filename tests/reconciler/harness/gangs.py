"""Gangs and groups in random clusters: they come beside pods that preempt by themselves, and change on the way."""

import random

from msgspec.structs import replace

from tests.preemption.building import pod_group
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import GANG, group, members
from tests.reconciler.harness.virtual_time import later
from webhook.policy.model.preemption import GroupDisruption, Groups

_VICTIMS = ("s", "t", "u")
_ZONE = "zone"


def gangs(made: Cluster, seed: int) -> None:
    """Gangs come at once or bit by bit, and pods that run belong to groups, which mostly go whole."""
    dice = random.Random(f"troubled gangs {seed}")
    if dice.random() < 0.7:
        made.policy = replace(made.policy, groups=Groups(disruption=GroupDisruption.GROUP))
    for name in _VICTIMS:
        if dice.random() < 0.4:
            made.groups.append(group(name, dice.randint(1, 3)))
    if not made.terms and dice.random() < 0.3:
        made.killed_at = frozenset(dice.sample(range(1, 60), dice.randint(1, 4)))
    made.begins.append(_gangs_beside)


def changing_gangs(made: Cluster, seed: int) -> None:
    """Minimums change, PodGroups go, gates open late, domains lose a node."""
    del seed
    made.begins.append(_groups_change)


def _gangs_beside(made: Cluster, rare: random.Random) -> None:
    """Let pods that run be members of groups, and gangs come at once or bit by bit, some of which change on the way."""
    dice = random.Random(f"gangs {rare.random()}")
    for pod in list(made.pods.values()):
        if pod["spec"].get("nodeName") and dice.random() < 0.5:
            labels = {**pod["metadata"]["labels"], GANG: dice.choice(_VICTIMS)}
            made.put({**pod, "metadata": {**pod["metadata"], "labels": labels}})
    for name in ("gang", "other")[: dice.choice((1, 1, 2))]:
        size, begin = dice.randint(2, 4), dice.choice((0.0, 0.3, dice.uniform(0, 20)))
        made.groups.append(group(name, size))
        cpu, priority = dice.randint(1, 5), dice.choice((100, 110, 120))
        for number in range(size + dice.choice((0, 0, 0, 1, -1))):
            at = begin + dice.choice((0.0, 0.0, 0.1, dice.uniform(0, 10)))
            (one,) = members(name, 1, cpu, priority=priority, first=number, at=at)
            later(at, made.put, one)
            if dice.random() < 0.05:
                later(at + dice.choice((dice.uniform(0, 1), dice.uniform(0, 20))), made.withdraw, f"{name}-{number}")


def _groups_change(made: Cluster, rare: random.Random) -> None:
    """Let groups change, and a third gang come with gates and in one domain, in the first forty seconds."""
    dice = random.Random(f"groups change {rare.random()}")
    at = lambda: dice.choice((dice.uniform(0, 3), dice.uniform(0, 40)))  # noqa: E731
    for one in made.nodes:
        one["metadata"]["labels"] = {**one["metadata"].get("labels", {}), _ZONE: dice.choice("ab")}
    if dice.random() < 0.6:
        _third_gang(made, dice)
    for name in [one["metadata"]["name"] for one in made.groups]:
        for _ in range(dice.choice((0, 0, 1, 2))):
            later(at(), set_minimum, made, name, dice.randint(1, 5))
        if dice.random() < 0.15:
            later(at(), remove_group, made, name)
    if dice.random() < 0.3 and len(made.nodes) > 1:
        change = made.drop_node if dice.random() < 0.5 else made.cordon
        later(at(), change, dice.choice(made.nodes)["metadata"]["name"])


def set_minimum(made: Cluster, name: str, minimum: int) -> None:
    """Somebody changes how many members a group needs."""
    _changed(made, name)
    for one in made.groups:
        if one["metadata"]["name"] == name:
            new = group(name, minimum) if "minMember" in one["spec"] else pod_group(name, minimum)
            one["spec"] = {**one["spec"], **new["spec"]}
    made.show_groups()


def remove_group(made: Cluster, name: str) -> None:
    """Somebody deletes a PodGroup; its members stay."""
    _changed(made, name)
    made.groups[:] = [one for one in made.groups if one["metadata"]["name"] != name]
    made.show_groups()


def _changed(made: Cluster, name: str) -> None:
    """Plans for its members are concerned, and those for lower pods: a member need not wait for others any more."""
    for pod in made.pods.values():
        if pod["metadata"]["labels"].get(GANG) == name:
            made.outcomes.outside("its PodGroup was changed", pod["metadata"]["uid"])
            if not pod["spec"].get("nodeName"):
                what = f"{pod['metadata']['name']} came in front, since its PodGroup was changed"
                made.outcomes.outside(what, above=pod["spec"]["priority"])


def _third_gang(made: Cluster, dice: random.Random) -> None:
    """A gang of a Kubernetes PodGroup, mostly in one domain; gates hold back some of its members for a while."""
    size, begin = dice.randint(2, 3), dice.uniform(0, 20)
    made.groups.append(pod_group("third", size, topology=_ZONE if dice.random() < 0.7 else ""))
    cpu, priority = dice.randint(1, 4), dice.choice((100, 110, 120))
    for number in range(size + dice.choice((0, 0, 1))):
        at = begin + dice.choice((0.0, dice.uniform(0, 5)))
        (one,) = members("third", 1, cpu, priority=priority, first=number, at=at)
        one["spec"]["schedulingGroup"] = {"podGroupName": "third"}
        if dice.random() < 0.5:
            one["spec"]["schedulingGates"] = [{"name": "quota"}]
            one["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]
            later(at + dice.choice((0.3, dice.uniform(0, 20))), _open_gates, made, f"third-{number}")
        later(at, made.put, one)


def _open_gates(made: Cluster, name: str) -> None:
    """What the condition says of the pod only its scheduler changes."""
    if name in made.pods:
        priority = made.pods[name]["spec"]["priority"]
        made.outcomes.outside(f"{name} came in front, since its gates opened", above=priority)
    made.edit(name, lambda pod: pod["spec"].pop("schedulingGates", None))
