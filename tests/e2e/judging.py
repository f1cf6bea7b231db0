"""What the oracle says of a cluster that goes on changing, on its objects as a watch has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from tests.preemption import oracle
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.pod import Pod, PodDisruptionBudget

Json = dict[str, Any]
MayGo = oracle.MayGo


def fits_on(preemptor: Pod, pods: Iterable[Pod], node: Node, without: set[str]) -> bool:
    """Whether the preemptor fits on the node once the pods of these uids are gone."""
    return bool(_ask(preemptor, [pod for pod in pods if pod.metadata.uid not in without], [node])["fits"])


def plans_for(
    preemptor: Pod, pods: Iterable[Pod], nodes: Iterable[Node], budgets: Iterable[PodDisruptionBudget], may_go: MayGo
) -> list[str]:
    """The nodes on which the preemptor fits, or would once pods that `may_go` have gone that no budget keeps."""
    answer = _ask(preemptor, pods, nodes, budgets, may_go)
    return answer["fits"] + [one["node"] for one in answer["candidates"] if not one["pdbViolations"]]


def _ask(
    preemptor: Pod,
    pods: Iterable[Pod],
    nodes: Iterable[Node],
    budgets: Iterable[PodDisruptionBudget] = (),
    may_go: MayGo | None = None,
) -> Json:
    asked = _plain(preemptor)
    asked["spec"]["preemptionPolicy"] = "PreemptLowerPriority"
    asked["status"].pop("nominatedNodeName", None)
    cluster = {
        "name": "live",
        "nodes": [_plain(node) for node in nodes],
        "pods": [_plain(pod) for pod in pods if pod.metadata.uid != preemptor.metadata.uid],
        "preemptor": asked,
        "podDisruptionBudgets": [_plain(budget) for budget in budgets],
    }
    return oracle.decide(cluster, may_go)


def _plain(item: Any) -> Json:
    """An object as JSON without empty fields, but with the fields that the oracle takes for granted."""
    made: Json = _without_empty(msgspec.to_builtins(item))
    made["metadata"].setdefault("labels", {})
    for part in ("spec", "status"):
        made.setdefault(part, {})
    if isinstance(item, Pod):
        made["status"].setdefault("phase", "Pending")
        for constraint in made["spec"].get("topologySpreadConstraints", ()):
            constraint.setdefault("maxSkew", 1)
    if isinstance(item, PodDisruptionBudget):
        made["status"].setdefault("disruptionsAllowed", 0)
    return made


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_empty(part) for key, part in value.items() if part not in (None, "", {}, [])}
    return [_without_empty(part) for part in value] if isinstance(value, list) else value
