"""A second opinion about units: every set of them is tried, for a pod, for one across nodes, and for a gang.

Shares no code with the decision. Pods ask for whole CPUs, nodes have a zone and a pool.
"""

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import combinations
from typing import Any, NamedTuple

from tests.preemption import oracle
from tests.preemption.building import HOST, Json, apart_from, bound, budget, node, pod, pod_group, volumes_of

ZONE = "zone"
_MOST_RUNNING = 11


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


Price = Callable[[list[Piece]], Any]


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
    for running in data["pods"]:
        name = group_name(running)
        if name == own:
            continue
        if not name or specs.get(name, {}).get("disruptionMode") == "Pod":
            found.append(Piece(frozenset({running["metadata"]["name"]}), running["spec"]["priority"]))
        else:
            members.setdefault(name, []).append(running)
    for name, pods in members.items():
        spec = specs.get(name, {})
        priority = spec.get("priority")
        if priority is None:
            priority = max(member["spec"]["priority"] for member in pods)
        least = spec.get("schedulingPolicy", {}).get("gang", {}).get("minCount", 0)
        if spec.get("disruptionMode") == "PodGroup" or not least:
            least = len(pods)
        ordered = sorted((member["metadata"]["name"] for member in pods), key=lambda one: int(one.rpartition("-")[2]))
        found.append(Piece(frozenset(ordered[:least]), priority, whole=name))
        found += [Piece(frozenset({one}), priority, of=name) for one in ordered[least:]]
    return found


def closed(chosen: Collection[Piece], everything: list[Piece]) -> list[Piece]:
    """The pieces, and those that go with them."""
    going = {one.whole for one in chosen if one.whole}
    return [*chosen, *(one for one in everything if one.of in going and one.of and one not in chosen)]


def names_of(chosen: Collection[Piece]) -> frozenset[str]:
    """The pods of these pieces."""
    return frozenset().union(*(one.pods for one in chosen))


def chosen_by(data: Json, own: str, names: Collection[str]) -> list[Piece]:
    """The pieces of these victims; fails if one is broken, and if somebody goes who may not, or should go too."""
    everything = pieces(data, own)
    chosen = [one for one in everything if not one.pods.isdisjoint(names)]
    assert names_of(chosen) == set(names), "a unit is broken, or an own member goes"
    assert set(closed(chosen, everything)) == set(chosen), "what a group could spare stays without it"
    return chosen


def cost_of(chosen: Collection[Piece]) -> Cost:
    return Cost(max(one.priority for one in chosen), sum(bool(one.whole) for one in chosen), len(names_of(chosen)))


def violations(data: Json, names: frozenset[str]) -> int:
    """How many of these pods go beyond a budget."""
    if not (guards := data["podDisruptionBudgets"]):
        return 0
    apps = Counter(one["metadata"]["labels"]["app"] for one in data["pods"] if one["metadata"]["name"] in names)
    allowed = {one["spec"]["selector"]["matchLabels"]["app"]: one["status"]["disruptionsAllowed"] for one in guards}
    return sum(max(0, apps[app] - count) for app, count in allowed.items())


def sets(data: Json, own: str, *, most: int = 99, strict: bool = True) -> Iterator[list[Piece]]:
    """All sets of at most so many pieces that may go, with those that go with them."""
    everything = pieces(data, own)
    usable = [one for one in everything if one.priority < 100]
    for size in range(1, min(most, len(usable)) + 1):
        for chosen in combinations(usable, size):
            going = closed(chosen, everything)
            if not (strict and violations(data, names_of(going))):
                yield going


def cheapest(data: Json, need: int, price: Price = cost_of) -> Any:
    """What the cheapest room for a gang costs; None if there is none."""
    best = None
    for chosen in sets(data, data["podGroup"]["metadata"]["name"]):
        cost = price(chosen)
        if (best is None or cost < best) and fits(data, names_of(chosen), need):
            best = cost
    return best


def fits(data: Json, gone: frozenset[str], need: int) -> bool:
    """Whether as many of the waiting members as are needed can be on nodes at once."""
    waiting = [pod for pod in data["preemptors"] if not pod["spec"].get("schedulingGates")]
    own = data["podGroup"]["metadata"]["name"]
    topology = data["podGroup"]["spec"].get("schedulingConstraints")
    here = [pod for pod in data["pods"] if pod["metadata"]["name"] not in gone]
    apart = "affinity" in waiting[0]["spec"]
    bound_on = {pod["spec"]["nodeName"] for pod in here if group_name(pod) == own}
    nodes = {one["metadata"]["name"]: one for one in data["nodes"]}
    free = {name: int(one["status"]["allocatable"]["cpu"]) for name, one in nodes.items()}
    for running in here:
        free[running["spec"]["nodeName"]] -= cpu_of(running)
    labels = {name: one["metadata"]["labels"] for name, one in nodes.items()}
    for zone in {labels[name][ZONE] for name in nodes} if topology else {""}:
        inside = [name for name in nodes if not topology or labels[name][ZONE] == zone]
        left = {name: free[name] for name in inside if not (apart and name in bound_on)}
        pools = {name: labels[name]["pool"] for name in left}
        here_already = bound_on <= set(inside)
        if here_already and any(_place(list(some), left, pools, apart) for some in combinations(waiting, need)):
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


class Decided(NamedTuple):
    """What was decided in a cluster for `own`, a gang: whether nobody has to go, and who does."""

    data: Json
    own: str
    fits: bool
    victims: frozenset[str]
    price: Price = cost_of
    incomplete: bool = False


def judged(decisions: Iterable[Decided]) -> Counter[str]:
    """Fails where somebody goes in vain or for a much higher price than the lowest; counts what was decided."""
    seen: Counter[str] = Counter()
    for seed, (data, own, as_it_is, victims, price, incomplete) in enumerate(decisions):
        if incomplete or as_it_is:
            assert not victims
            seen["incomplete" if incomplete else "fits"] += 1
            continue
        assert fits(data, victims, data["need"]) is bool(victims), f"seed {seed}: in vain, or for nobody"
        best, paid = cheapest(data, data["need"], price), price(chosen_by(data, own, victims)) if victims else None
        if best is None or paid is None:
            assert best is paid, f"seed {seed}: {paid}, where {best} would do"
            seen["hopeless"] += 1
            continue
        seen["best" if paid == best else "worse"] += 1
        (highest, groups, pods), lowest = paid[:3], best[:3]
        assert highest == lowest[0], f"seed {seed}: {paid}, where {best} would do"
        assert groups <= 2 * lowest[1], f"seed {seed}: {paid}, where {best} would do"
        assert groups > lowest[1] or pods <= 2 * lowest[2], f"seed {seed}: {paid}, where {best} would do"
    assert seen["best"] >= 0.95 * (seen["best"] + seen["worse"]) > 80, seen
    assert min(seen["fits"], seen["hopeless"]) > 10, seen
    return seen


def gang_cluster(seed: int) -> Json:
    """A crowded cluster, with groups of every kind; the gang may be partly bound, gated, unlike or tied to a zone."""
    dice = random.Random(seed)
    nodes = [
        node(f"n{number}", "8", labels={ZONE: f"z{number % 2}", "pool": dice.choice("ab")})
        for number in range(dice.randint(2, 8))
    ]
    room = {one["metadata"]["name"]: 8 for one in nodes}
    names = [f"g{number}" for number in range(dice.randint(1, 4))]
    need, priority, asks = dice.randint(2, 4), 100, dice.randint(2, 6)
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
    running = sum(group_name(one) == "gang" for one in pods)
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
    gang = pod_group("gang", running + need, topology=ZONE if dice.random() < 0.3 else "", priority=priority)
    return {
        "name": f"units-{seed}",
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
    more: Json = {"nodeSelector": {"pool": "a"}} if chosen else {}
    more |= apart_from(HOST, of="gang") if apart else {}
    made = []
    for number in range(count + gated):
        cpu = max(1, asks - number) if unlike else asks
        gates = {"schedulingGates": [{"name": "wait"}]} if number >= count else {}
        made.append(pod(f"m-{number}", priority=priority, cpu=str(cpu), group="gang", **more, **gates))
        made[-1]["metadata"]["labels"] = {"of": "gang"}
    return made


def kept_off(seed: int) -> Json:
    """A crowded cluster whose preemptor is kept off by anti-affinity of either side, hard spread, a claim, or room."""
    dice, data = random.Random(f"kept off {seed}"), gang_cluster(seed)
    against_it = dice.random() < 0.6
    key = lambda: dice.choice((ZONE, ZONE, HOST))  # noqa: E731
    for one in data["pods"]:
        if against_it and dice.random() < 0.4:
            one["spec"] |= apart_from(key(), app="p")
        if dice.random() < 0.1:
            one["spec"]["volumes"] += volumes_of("data")
    more: Json = apart_from(key(), app=dice.choice("xyz")) if dice.random() < 0.6 else {}
    if dice.random() < 0.5:
        selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["p", "x"]}]}
        hard = {"whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
        keys = dice.choice(((ZONE,), (ZONE,), (HOST,), (ZONE, HOST)))
        more["topologySpreadConstraints"] = [hard | {"topologyKey": one, "maxSkew": dice.randint(1, 2)} for one in keys]
    if dice.random() < 0.3:
        more["volumes"] = volumes_of("data")
    claim, volume = bound("data", "ReadWriteOncePod")
    volumes = {"persistentVolumes": [volume], "persistentVolumeClaims": [claim], "storageClasses": []}
    return data | volumes | {"preemptor": pod("p", priority=100, cpu=str(dice.randint(1, 3)), **more)}


def where_it_fits(data: Json, gone: frozenset[str]) -> list[str]:
    """The nodes that the oracle says the preemptor fits on once these pods are gone."""
    asking = {**data["preemptor"], "spec": {**data["preemptor"]["spec"], "preemptionPolicy": "Never"}}
    there = [one for one in data["pods"] if one["metadata"]["name"] not in gone]
    found: list[str] = oracle.decide(data | {"preemptor": asking, "pods": there})["fits"]
    return found


def price_on(data: Json, name: str, chosen: Collection[Piece]) -> tuple[Any, ...]:
    """What a set costs, by the documented keys in their order (docs/semantics.md D6 and D15); the less the better."""
    pods = {one["metadata"]["name"]: one for one in data["pods"]}
    of = {one: unit.priority for unit in chosen for one in unit.pods}
    highest = max(of.values())
    return (
        violations(data, frozenset(of)),
        highest,
        sum(bool(unit.whole) for unit in chosen),
        sum(priority + 2**31 for priority in of.values()),
        len(of),
        [-ord(sign) for sign in min(pods[one]["status"]["startTime"] for one in of if of[one] == highest)],
        sum(pods[one]["spec"]["nodeName"] != name for one in of),
    )
