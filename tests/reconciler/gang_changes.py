"""What becomes of groups in random clusters: minimums change, PodGroups go, gates open late, domains lose a node."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from tests.reconciler.gang_clusters import members
from tests.reconciler.outcome_judge import GANG
from tests.reconciler.simulation import Simulation
from webhook.kube.resources import COSCHEDULING_POD_GROUP, POD_GROUP

Json = dict[str, Any]
_ZONE = "zone"


def groups_change(made: Simulation, rare: random.Random) -> None:
    """Let groups change, and a third gang come with gates and in one domain, in the first forty seconds."""
    loop, dice = asyncio.get_running_loop(), random.Random(f"groups change {rare.random()}")
    at = lambda: dice.choice((dice.uniform(0, 3), dice.uniform(0, 40)))  # noqa: E731
    for one in made.nodes:
        one["metadata"]["labels"] = {**one["metadata"].get("labels", {}), _ZONE: dice.choice("ab")}
    if dice.random() < 0.6:
        _third_gang(made, dice)
    for name in [one["metadata"]["name"] for one in made.groups]:
        for _ in range(dice.choice((0, 0, 1, 2))):
            loop.call_later(at(), set_minimum, made, name, dice.randint(1, 5))
        if dice.random() < 0.15:
            loop.call_later(at(), remove_group, made, name)
    if dice.random() < 0.3 and len(made.nodes) > 1:
        change = made.drop_node if dice.random() < 0.5 else made.cordon
        loop.call_later(at(), change, dice.choice(made.nodes)["metadata"]["name"])


def set_minimum(made: Simulation, name: str, minimum: int) -> None:
    """Somebody changes how many members a group needs."""
    _changed(made, name)
    for one in made.groups:
        if one["metadata"]["name"] == name:
            new = {"minMember": minimum} if "minMember" in one["spec"] else _gang_of(minimum)
            one["spec"] = {**one["spec"], **new}
    made.show_groups()


def remove_group(made: Simulation, name: str) -> None:
    """Somebody deletes a PodGroup; its members stay."""
    _changed(made, name)
    made.groups[:] = [one for one in made.groups if one["metadata"]["name"] != name]
    for kind in (COSCHEDULING_POD_GROUP, POD_GROUP):
        cache, key = made.setting.state.caches[kind], f"default/{name}"
        if (known := cache.get(key)) is not None:
            cache._remove(key, known)


def _changed(made: Simulation, name: str) -> None:
    """Plans for its members are concerned, and those for lower pods: a member need not wait for others any more."""
    for pod in made.pods.values():
        if pod["metadata"]["labels"].get(GANG) == name:
            made.outcomes.outside("its PodGroup was changed", pod["metadata"]["uid"])
            if not pod["spec"].get("nodeName"):
                what = f"{pod['metadata']['name']} came in front, since its PodGroup was changed"
                made.outcomes.outside(what, above=pod["spec"]["priority"])


def _gang_of(minimum: int) -> Json:
    return {"schedulingPolicy": {"gang": {"minCount": minimum}}}


def _third_gang(made: Simulation, dice: random.Random) -> None:
    """A gang of a Kubernetes PodGroup, mostly in one domain; gates hold back some of its members for a while."""
    loop, size, begin = asyncio.get_running_loop(), dice.randint(2, 3), dice.uniform(0, 20)
    topology = {"schedulingConstraints": {"topology": [{"key": _ZONE}]}} if dice.random() < 0.7 else {}
    made.groups.append({"metadata": {"name": "third", "namespace": "default"}, "spec": _gang_of(size) | topology})
    cpu, priority = dice.randint(1, 4), dice.choice((100, 110, 120))
    for number in range(size + dice.choice((0, 0, 1))):
        at = begin + dice.choice((0.0, dice.uniform(0, 5)))
        (one,) = members("third", 1, cpu, priority=priority, first=number, at=at)
        one["spec"]["schedulingGroup"] = {"podGroupName": "third"}
        if dice.random() < 0.5:
            one["spec"]["schedulingGates"] = [{"name": "quota"}]
            one["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]
            loop.call_later(at + dice.choice((0.3, dice.uniform(0, 20))), _open_gates, made, f"third-{number}")
        loop.call_later(at, made.put, one)


def _open_gates(made: Simulation, name: str) -> None:
    """What the condition says of the pod only its scheduler changes."""
    known = made.pods.get(name)
    if known is not None and "schedulingGates" in known["spec"]:
        spec = {key: value for key, value in known["spec"].items() if key != "schedulingGates"}
        made.put({**known, "metadata": dict(known["metadata"]), "spec": spec})
