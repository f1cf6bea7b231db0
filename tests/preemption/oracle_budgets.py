"""The oracle's budgets: pods that go are counted one by one, as kube-scheduler does or as the Eviction API does."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.preemption.oracle_pods import selects

Json = dict[str, Any]
READY = {"type": "Ready", "status": "True"}


def beyond(budgets: list[Json], pods: Iterable[Json], *, api: bool = False, evicts: bool = False) -> list[str]:
    """Those of the pods, by uid, that go beyond a budget, in this order; the `api` reads them in its own way."""
    used: Counter[str] = Counter()
    found = []
    for pod in pods:
        mine = [] if evicts and _unguarded(budgets, pod) else _used(budgets, pod, api=api)
        used.update(budget["metadata"]["name"] for budget in mine)
        if any(used[budget["metadata"]["name"]] > _granted(budget, api=api) for budget in mine):
            found.append(pod["metadata"]["uid"])
    return found


def refused(budgets: list[Json], pod: Json, *, strict: bool, evicts: bool) -> bool:
    """Whether no eviction is possible now: a strict budget is used up, or the API finds several for one pod."""
    if evicts and _unguarded(budgets, pod):
        return False
    if evicts and "deletionTimestamp" not in pod["metadata"] and len(_covering(budgets, pod)) > 1:
        return True
    return strict and any(_granted(budget, api=True) <= 0 for budget in _used(budgets, pod, api=True))


def _covering(budgets: list[Json], pod: Json) -> list[Json]:
    mine = [budget for budget in budgets if budget["metadata"]["namespace"] == pod["metadata"]["namespace"]]
    return [budget for budget in mine if selects(budget["spec"].get("selector"), pod["metadata"]["labels"])]


def _used(budgets: list[Json], pod: Json, *, api: bool) -> list[Json]:
    """The budgets that count the pod when it goes; to kube-scheduler one that names it has counted it already."""
    name, mine = pod["metadata"]["name"], _covering(budgets, pod)
    if api:
        return [] if "deletionTimestamp" in pod["metadata"] else mine
    labels = pod["metadata"]["labels"]
    mine = [budget for budget in mine if labels and any(budget["spec"]["selector"].values())]
    return [budget for budget in mine if name not in budget["status"].get("disruptedPods", {})]


def _unguarded(budgets: list[Json], pod: Json) -> bool:
    """Whether the Eviction API does not ask what is left: the pod is starting, or not ready and that is let pass."""
    if pod["status"]["phase"] == "Pending":
        return True
    mine = _covering(budgets, pod)
    if READY in pod["status"].get("conditions", ()) or len(mine) != 1:
        return False
    status = mine[0]["status"]
    always = mine[0]["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
    return always or status["currentHealthy"] >= status["desiredHealthy"] > 0


def _granted(budget: Json, *, api: bool) -> int:
    """How many may go; the API server grants nothing while the status is older than the spec."""
    stale = budget["metadata"].get("generation", 0) > budget["status"].get("observedGeneration", 0)
    allowed: int = budget["status"]["disruptionsAllowed"]
    return 0 if api and stale else allowed
