"""The keys of costs that tests and benches share."""

from typing import Any

import numpy as np

from tests.preemption.building import NOW, Json
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
    """By pod row how often the workload of each pod was evicted."""
    column = np.zeros(snapshot.pods.rows, np.int64)
    for name, count in evicted.items():
        column[snapshot.pods.find("default", name)] = count
    return column
