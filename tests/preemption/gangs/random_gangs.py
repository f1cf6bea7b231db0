"""Random clusters of up to eight nodes with a gang that waits, as JSON data."""

import random

from tests.preemption.building import Json, budget, node, pod, pod_group

_MOST_RUNNING = 11


def gang_cluster(seed: int) -> Json:
    """A crowded cluster, with groups of every kind; the gang may be partly bound, gated, unlike or tied to a zone."""
    dice = random.Random(seed)
    nodes = [
        node(f"n{number}", "8", labels={"zone": f"z{number % 2}", "pool": dice.choice(("a", "b"))})
        for number in range(dice.randint(2, 8))
    ]
    room = {one["metadata"]["name"]: 8 for one in nodes}
    names = [f"g{number}" for number in range(dice.randint(1, 4))]
    need, priority = dice.randint(2, 4), 100
    asks = dice.randint(2, 6)
    pods = []
    bound = dice.choice((0, 0, 0, 1, 2))
    for number in range(_MOST_RUNNING + bound):
        cpu, on = dice.randint(2, 6), dice.choice(list(room))
        if room[on] < cpu:
            continue
        room[on] -= cpu
        own = number < bound
        group = "gang" if own else dice.choice(names) if dice.random() < 0.55 else ""
        rank = priority if own else dice.choice((0, 0, 10, 20, 20, 50, 150))
        started = dice.randint(1, 9999)
        pods.append(pod(f"p-{number}", on=on, cpu=str(cpu), priority=rank, started=started, group=group))
        pods[-1]["metadata"]["labels"] = {"app": dice.choice("xyz"), "of": group}
    running = sum(one["spec"].get("schedulingGroup") == {"podGroupName": "gang"} for one in pods)
    for name, left in room.items():  # what is left is taken by pods that never go
        if left and dice.random() < 0.6:
            pods.append(pod(f"filler-{name}", on=name, cpu=str(left), priority=200))
            pods[-1]["metadata"]["labels"] = {"app": "filler"}
    groups = [
        pod_group(
            name,
            disruptionMode=dice.choice(("Pod", "PodGroup", None, None)),
            priority=dice.choice((None, None, None, 5, 30, 120)),
            minimum=dice.randint(1, 3) if dice.random() < 0.5 else 0,
        )
        for name in names
        if dice.random() < 0.7
    ]
    random.Random(-seed).shuffle(pods)  # the pods that a group can spare may be seen before the others
    gang = pod_group("gang", running + need, topology="zone" if dice.random() < 0.3 else "", priority=priority)
    return {
        "nodes": nodes,
        "pods": pods,
        "podGroup": gang,
        "podGroups": [*groups, gang],
        "podDisruptionBudgets": [budget("b", {"app": "x"}, dice.randint(0, 3))] if dice.random() < 0.35 else [],
        "preemptors": _members(dice, need, asks, priority),
        "need": need,
    }


def _members(dice: random.Random, need: int, asks: int, priority: int) -> list[Json]:
    """The waiting members: as many as are needed, more, or fewer, and sometimes gated."""
    count = need + dice.choice((0, 0, 0, 0, 1, -1))
    gated = dice.choice((0, 0, 0, 0, 1))
    unlike, apart, chosen = dice.random() < 0.25, dice.random() < 0.15, dice.random() < 0.15
    made = []
    for number in range(count + gated):
        cpu = max(1, asks - number) if unlike else asks
        more: Json = {}
        if chosen:
            more["nodeSelector"] = {"pool": "a"}
        if apart:
            term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"of": "gang"}}}
            more["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        if number >= count:
            more["schedulingGates"] = [{"name": "wait"}]
        made.append(pod(f"m-{number}", priority=priority, cpu=str(cpu), group="gang", **more))
        made[-1]["metadata"]["labels"] = {"of": "gang"}
    return made
