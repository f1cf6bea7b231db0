"""How a Deployment goes from one template to the next (`pkg/controller/deployment`, `rolling.go` and `recreate.go`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

_DEFAULT = "25%"
"""`maxSurge` and `maxUnavailable`, if a Deployment names none."""


class RolloutStrategy(NamedTuple):
    """How a Deployment is rolled out: at most `surge` pods more than wanted, and `unavailable` fewer."""

    recreate: bool
    surge: int
    unavailable: int


class ReplicaCounts(NamedTuple):
    """One ReplicaSet of a Deployment: how many pods it is to have, and how many of them are available."""

    name: str
    replicas: int
    available: int


def strategy_of(spec: Mapping[str, Any] | None, replicas: int) -> RolloutStrategy:
    """The strategy in `spec.strategy` of a Deployment with so many replicas (`ResolveFenceposts`)."""
    given = spec or {}
    if given.get("type") == "Recreate":
        return RolloutStrategy(recreate=True, surge=0, unavailable=0)
    rolling = given.get("rollingUpdate") or {}
    surge = share(rolling.get("maxSurge", _DEFAULT), replicas)
    unavailable = share(rolling.get("maxUnavailable", _DEFAULT), replicas, math.floor)
    return RolloutStrategy(recreate=False, surge=surge, unavailable=unavailable if surge or unavailable else 1)


def rollout_step(
    wanted: int,
    strategy: RolloutStrategy,
    newest: ReplicaCounts,
    others: Sequence[ReplicaCounts],
    *,
    has_old_pods: bool,
) -> dict[str, int]:
    """The next step of a rollout: new numbers of replicas by the name of the ReplicaSet; empty if nothing is due.

    `others` are the older ReplicaSets, the oldest first. `has_old_pods` says whether one of their pods is there still:
    Recreate waits for that. Scaling up is a step of its own, as in kube-controller-manager.
    """
    if strategy.recreate:
        down = {other.name: 0 for other in others if other.replicas}
        if down or has_old_pods:
            return down
        return {newest.name: wanted} if newest.replicas != wanted else {}
    total = newest.replicas + sum(other.replicas for other in others)
    target = newest.replicas
    if newest.replicas > wanted:
        target = wanted
    elif total < wanted + strategy.surge:
        target = min(wanted, newest.replicas + wanted + strategy.surge - total)
    if target != newest.replicas:
        return {newest.name: target}
    return _down(wanted - strategy.unavailable, newest, others, total)


def scaled_step(wanted: int, strategy: RolloutStrategy, sets: Sequence[ReplicaCounts]) -> dict[str, int]:
    """How a Deployment's ReplicaSets, the newest first, are scaled while its rollout is paused (`scale` of `sync.go`).

    One alone gets all replicas, several share them and the surge in proportion; what is left over goes to the largest.
    """
    active = [row for row in sets if row.replicas] or list(sets[:1])
    if len(active) < 2 or strategy.recreate:
        return {row.name: wanted for row in active[:1] if row.replicas != wanted and len(active) == 1}
    total, most = sum(row.replicas for row in active), wanted + strategy.surge if wanted else 0
    ordered = sorted(active, key=lambda row: -row.replicas)
    left, sizes = most - total, {}
    for row in ordered:
        part = math.floor(row.replicas * most / total + 0.5) - row.replicas
        part = min(part, left) if most > total else max(part, left)
        sizes[row.name] = row.replicas + part
        left -= part
    sizes[ordered[0].name] += left
    return {row.name: sizes[row.name] for row in active if sizes[row.name] != row.replicas}


def _down(least: int, newest: ReplicaCounts, others: Sequence[ReplicaCounts], total: int) -> dict[str, int]:
    """Scale older ReplicaSets down so far that `least` pods stay available: first their unavailable pods go."""
    room = total - least - (newest.replicas - newest.available)
    if room <= 0:
        return {}
    left = {other.name: other.replicas for other in others}
    available = newest.available + sum(other.available for other in others)
    for other in others:
        unavailable = min(room, max(0, other.replicas - other.available))
        left[other.name] -= unavailable
        room -= unavailable
    spare = max(0, available - least)
    for other in others:
        fewer = min(left[other.name], spare)
        left[other.name] -= fewer
        spare -= fewer
    return {other.name: left[other.name] for other in others if left[other.name] != other.replicas}


def share(amount: int | str, of: int, rounded: Callable[[float], int] = math.ceil) -> int:
    """An absolute number, or a percentage of a number. Raises ValueError for a text that is neither."""
    try:
        if isinstance(amount, str) and amount.endswith("%"):
            return rounded(int(amount[:-1]) * of / 100)
        return int(amount)
    except ValueError:
        raise ValueError(f"{amount!r} is neither a number nor a percentage") from None
