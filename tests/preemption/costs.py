"""The keys of costs that tests and benches share, and a second opinion about what pods cost by them."""

from collections.abc import Collection, Mapping
from datetime import datetime
from math import inf
from typing import Any, NamedTuple

import numpy as np
from msgspec import structs

from tests.preemption.building import NOW, Json
from tests.preemption.oracle_pods import grace, key
from webhook.kube.instants import rfc3339
from webhook.kube.pods import POD_DELETION_COST
from webhook.policy.model.victims import EvictionCost, LostWork
from webhook.preemption.snapshot.columns import Ints
from webhook.preemption.snapshot.snapshot import Snapshot

SAVED = "example.com/saved-at"
"""An annotation that says when work was saved."""
READY = [{"type": "Ready", "status": "True"}]
"""The conditions of a pod that is ready."""
EVERY = EvictionCost(
    readiness=True,
    group_restarts=True,
    deletion_cost=True,
    lost_work=LostWork(checkpoints=(SAVED,)),
    recent_evictions=3600.0,
    grace_period=True,
)
"""All costs at once."""


def dressed(made: Json, *, ready: bool = True, cost: Any = None, saved: Any = None, grace: int | None = None) -> Json:
    """The pod with what the keys look at; `saved` is in seconds before NOW, or a text."""
    made["status"]["conditions"] = READY if ready else []
    annotations = made["metadata"].setdefault("annotations", {})
    if cost is not None:
        annotations[POD_DELETION_COST] = str(cost)
    if saved is not None:
        annotations[SAVED] = saved if isinstance(saved, str) else rfc3339(NOW - saved)
    if grace is not None:
        made["spec"]["terminationGracePeriodSeconds"] = grace
    return made


def counts(snapshot: Snapshot, evicted: dict[str, int]) -> Ints:
    """By pod row how often the workload of each pod, `namespace/name`, was evicted."""
    column = np.zeros(snapshot.pods.rows, np.int64)
    for name, count in evicted.items():
        column[snapshot.pod_rows([name])] = count
    return column


def group_of(pod: Json) -> str:
    """The PodGroup or JobSet of the pod."""
    name: str = pod["spec"].get("schedulingGroup", {}).get("podGroupName", "")
    return name or pod["metadata"].get("labels", {}).get("jobset.sigs.k8s.io/jobset-name", "")


def _saved_at(pod: Json) -> float:
    """When the pod last had no work to lose: when it said so readably, but not before it started."""
    started, said = pod["status"].get("startTime"), pod["metadata"].get("annotations", {}).get(SAVED)
    if started is None:
        return inf
    try:
        return max(datetime.fromisoformat(at).timestamp() for at in (started, said or started))
    except ValueError:
        return datetime.fromisoformat(started).timestamp()


def _deletion_cost(pod: Json) -> int:
    try:
        return int(pod["metadata"].get("annotations", {}).get(POD_DELETION_COST, "0"))
    except ValueError:
        return 0


class Counted(NamedTuple):
    """What pods cost by those of the documented keys that are `on`, in their order (docs/semantics.md D13)."""

    evicted: Mapping[str, int]
    on: Collection[str]

    def of_pod(self, pod: Json) -> list[Any]:
        amounts = {
            "readiness": READY[0] in pod["status"].get("conditions", ()),
            "group_restarts": bool(group_of(pod)),
            "deletion_cost": _deletion_cost(pod),
            "lost_work": NOW - _saved_at(pod),
            "recent_evictions": self.evicted[key(pod)],
            "grace_period": grace(pod),
        }
        return [amount for name, amount in amounts.items() if name in self.on]

    def of_pods(self, pods: list[Json]) -> list[Any]:
        totals = {
            "group_restarts": len({group_of(pod) for pod in pods} - {""}),
            "lost_work": sum(int(max(NOW - _saved_at(pod), 0)) for pod in pods),
            "grace_period": max(map(grace, pods)),
        }
        columns = zip(*map(self.of_pod, pods), strict=True)
        names = [name for name in structs.asdict(EVERY) if name in self.on]
        return [totals.get(name, sum(column)) for name, column in zip(names, columns, strict=True)]
