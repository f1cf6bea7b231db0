"""Random clusters under policies that count what evictions cost and whose they were."""

import random
from functools import partial

from msgspec.structs import replace

from tests.preemption.building import owned_by
from tests.reconciler.builders import START
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import Json
from webhook.kube.instants import rfc3339
from webhook.kube.pods import POD_DELETION_COST
from webhook.policy.model.limits import CycleKeeper, Cycles, LabelRate, Rate, WorkloadLimit
from webhook.policy.model.values import MARK
from webhook.policy.model.victims import EvictionCost, LostWork

SAVED = "example.com/saved-at"


def costs(made: Cluster, seed: int) -> None:
    """Random costs, limits of workloads and shares."""
    dice = random.Random(f"costly {seed}")
    some = lambda: dice.random() < 0.6  # noqa: E731
    cost = EvictionCost(
        readiness=some(),
        group_restarts=some(),
        deletion_cost=some(),
        lost_work=LostWork(checkpoints=(SAVED,)) if some() else None,
        recent_evictions=dice.choice((5.0, 60.0, 3600.0)) if some() else None,
        grace_period=some(),
    )
    window = lambda: dice.choice((5.0, 60.0))  # noqa: E731
    limits = replace(
        made.policy.limits,
        per_workload=WorkloadLimit(dice.randint(1, 3), dice.choice((20.0, 60.0, 120.0))) if some() else None,
        per_namespace=Rate(dice.randint(1, 3), window()) if dice.random() < 0.3 else None,
        per_label=LabelRate("app", dice.randint(1, 2), window()) if dice.random() < 0.3 else None,
        cycles=Cycles(keep=dice.choice(list(CycleKeeper)), window=dice.choice((20.0, 60.0, 3600.0))),
    )
    victims = replace(made.policy.victims, cost=cost)
    made.policy = replace(made.policy, limits=limits, victims=victims)
    made.dresses.append(partial(_dress, dice))


def _dress(dice: random.Random, pod: Json) -> None:
    """Whatever pod comes has what the keys look at; preemptors belong to the workloads of victims."""
    meta = pod["metadata"]
    if dice.random() < 0.5:
        meta.setdefault("annotations", {})[POD_DELETION_COST] = str(dice.randint(-5, 5))
    if dice.random() < 0.3:
        meta.setdefault("annotations", {})[SAVED] = rfc3339(START - dice.randint(-100, 3000))
    if dice.random() < 0.3:
        meta["labels"]["jobset.sigs.k8s.io/jobset-name"] = dice.choice(("s", "t"))
    if dice.random() < 0.7 and pod["status"]["phase"] == "Running":
        pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    if MARK in meta["labels"] and dice.random() < 0.9:
        meta["ownerReferences"] = owned_by("Job", dice.choice(("x", "y")))
