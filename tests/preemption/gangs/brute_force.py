"""A second opinion about units: every set of them and every placement is tried. Shares no code with the decision.

Clusters are those of `random_gangs`: pods ask for whole CPUs, nodes have a zone and a pool.
"""

from collections.abc import Callable, Collection
from itertools import chain, combinations
from typing import Any, NamedTuple

Json = dict[str, Any]


class Piece(NamedTuple):
    """Pods, by name, that go together; `whole` is the group's name if a group goes whole, `of` that which spares it."""

    pods: frozenset[str]
    priority: int
    whole: str = ""
    of: str = ""


class Cost(NamedTuple):
    """What a set of pieces costs, by the documented keys; strict budgets are never violated."""

    highest: int
    groups: int
    pods: int


def group_name(pod: Json) -> str:
    name: str = pod["spec"].get("schedulingGroup", {}).get("podGroupName", "")
    return name


def cpu_of(pod: Json) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def pieces(data: Json, own: str) -> list[Piece]:
    """What may go for the gang `own`, whatever its priority."""
    specs = {one["metadata"]["name"]: one["spec"] for one in data["podGroups"]}
    members: dict[str, list[Json]] = {}
    found = []
    for pod in data["pods"]:
        name = group_name(pod)
        mode = specs.get(name, {}).get("disruptionMode")
        if name == own:
            continue
        if not name or mode == "Pod":
            found.append(Piece(frozenset({pod["metadata"]["name"]}), pod["spec"]["priority"]))
        else:
            members.setdefault(name, []).append(pod)
    for name, pods in members.items():
        spec = specs.get(name, {})
        priority = spec.get("priority")
        if priority is None:
            priority = max(pod["spec"]["priority"] for pod in pods)
        least = spec.get("schedulingPolicy", {}).get("gang", {}).get("minCount", 0)
        if spec.get("disruptionMode") == "PodGroup" or not least:
            least = len(pods)
        ordered = sorted((pod["metadata"]["name"] for pod in pods), key=lambda one: int(one.rpartition("-")[2]))
        found.append(Piece(frozenset(ordered[:least]), priority, whole=name))
        found += [Piece(frozenset({one}), priority, of=name) for one in ordered[least:]]
    return found


def closed(chosen: tuple[Piece, ...], everything: list[Piece]) -> list[Piece]:
    """The pieces, and those that go with them."""
    going = {one.whole for one in chosen if one.whole}
    return [*chosen, *(one for one in everything if one.of in going and one.of and one not in chosen)]


def chosen_by(data: Json, own: str, names: Collection[str]) -> list[Piece]:
    """The pieces of these victims; fails if one is broken, and if somebody goes who may not, or should go too."""
    everything = pieces(data, own)
    chosen = [one for one in everything if not one.pods.isdisjoint(names)]
    assert frozenset().union(*(one.pods for one in chosen)) == set(names), "a unit is broken, or an own member goes"
    assert set(closed(tuple(chosen), everything)) == set(chosen), "what a group could spare stays without it"
    return chosen


def cost_of(chosen: list[Piece]) -> Cost:
    return Cost(
        max(one.priority for one in chosen),
        sum(bool(one.whole) for one in chosen),
        sum(len(one.pods) for one in chosen),
    )


def fits(data: Json, gone: frozenset[str], need: int) -> bool:
    """Whether as many of the waiting members as are needed can be on nodes at once."""
    waiting = [pod for pod in data["preemptors"] if not pod["spec"].get("schedulingGates")]
    own = data["podGroup"]["metadata"]["name"]
    topology = data["podGroup"]["spec"].get("schedulingConstraints")
    here = [pod for pod in data["pods"] if pod["metadata"]["name"] not in gone]
    apart = "affinity" in waiting[0]["spec"]
    bound_on = {pod["spec"]["nodeName"] for pod in here if group_name(pod) == own}
    nodes = {one["metadata"]["name"]: one for one in data["nodes"]}
    free = {
        name: int(one["status"]["allocatable"]["cpu"])
        - sum(cpu_of(pod) for pod in here if pod["spec"]["nodeName"] == name)
        for name, one in nodes.items()
    }
    zones = {one["metadata"]["labels"]["zone"] for one in nodes.values()} if topology else {""}
    for zone in sorted(zones):
        inside = [name for name in nodes if not topology or nodes[name]["metadata"]["labels"]["zone"] == zone]
        if not bound_on <= set(inside):
            continue
        blocked = bound_on if apart else set()
        left = {name: free[name] for name in inside if name not in blocked}
        pools = {name: one["metadata"]["labels"]["pool"] for name, one in nodes.items()}
        if any(_place(list(some), left, pools, apart) for some in combinations(waiting, need)):
            return True
    return False


def _place(pods: list[Json], free: dict[str, int], pools: dict[str, str], apart: bool) -> bool:
    if not pods:
        return True
    pod, *rest = pods
    wanted = pod["spec"].get("nodeSelector", {}).get("pool")
    tried = set()
    for name, amount in free.items():
        if amount < cpu_of(pod) or (wanted and pools[name] != wanted) or (amount, pools[name]) in tried:
            continue
        tried.add((amount, pools[name]))
        left = {**free, name: amount - cpu_of(pod)}
        if apart:
            del left[name]
        if _place(rest, left, pools, apart):
            return True
    return False


def cheapest(data: Json, need: int, priority: int, cost_of: Callable[[list[Piece]], Any] = cost_of) -> tuple[bool, Any]:
    """Whether the gang fits as things are, and if not what the cheapest room costs; None if there is none."""
    if fits(data, frozenset(), need):
        return True, None
    everything = pieces(data, data["podGroup"]["metadata"]["name"])
    usable = [one for one in everything if one.priority < priority]
    apps = {pod["metadata"]["name"]: pod["metadata"]["labels"]["app"] for pod in data["pods"]}
    allowed = {one["spec"]["selector"]["matchLabels"]["app"]: one["status"] for one in data["podDisruptionBudgets"]}
    best = None
    sets = chain.from_iterable(combinations(usable, size) for size in range(1, len(usable) + 1))
    for chosen in (closed(some, everything) for some in sets):
        names = frozenset(name for one in chosen for name in one.pods)
        spent = [apps[name] for name in names]
        if any(spent.count(app) > status["disruptionsAllowed"] for app, status in allowed.items()):
            continue
        cost = cost_of(chosen)
        if (best is None or cost < best) and fits(data, names, need):
            best = cost
    return False, best
