"""From what happened to answers: numbers, and who is behind them; sorted, so that a run gives one answer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec
import numpy as np

from webhook.clusters.simulated.history import Eviction, owner_of
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_terminal
from webhook.policy.model.limits import Rate
from webhook.simulation.report.groups import PodGroupRow, pod_groups
from webhook.simulation.report.not_played import not_played
from webhook.simulation.simulation import Running

_EXAMPLES = 3


class _Part(msgspec.Struct, rename="camel", kw_only=True):
    """Part of an answer."""


class Group(_Part):
    """The pods of a namespace, owner, class or node; `lost` is seconds of work that evicted pods had not saved.

    Evicted are those that went for others or by a drain, and those that were lost with their node.
    """

    name: str
    running: int = 0
    waiting: int = 0
    placed: int = 0
    evicted: int = 0
    lost: float = 0.0
    longest: float | None = None
    """The longest time until one of them was placed, in seconds."""


class WaitingRow(_Part):
    """Pods that wait for the same reason."""

    reason: str
    pods: int
    examples: list[str]


class LimitRow(_Part):
    """An owner's evictions within the window of the policy's limit, against what that allows."""

    owner: str
    evicted: int
    most: int
    allowed: int
    window: float
    policy: str


class Room(_Part):
    """What is free on a node, as shares of what it has; `pods` is how many pods it has."""

    node: str
    cpu: float
    memory: float
    pods: int


class Summary(_Part):
    """All there is to say of one run; times are in seconds after the start."""

    name: str
    seconds: float
    at_rest: bool
    metrics: dict[str, float]
    namespaces: list[Group]
    owners: list[Group]
    classes: list[Group]
    nodes: list[Group]
    waiting: list[WaitingRow]
    evictions: list[Eviction]
    placements: list[tuple[float, str, str, str]]
    """When, which pod, whose, on which node."""
    limits: list[LimitRow]
    room: list[Room]
    groups: list[PodGroupRow]
    plans: dict[str, int]
    refused: dict[str, str]
    warnings: dict[str, str]
    cannot_be_judged: dict[str, str]
    not_played: dict[str, str]
    """What objects ask for and nothing here does, by kind and field."""
    notes: list[tuple[float, str]]
    errors: list[str]


class _Numbers(NamedTuple):
    """What metrics are made of: a run, who went and how, how long pods and gangs waited, and what is there then."""

    result: Running
    evictions: list[Eviction]
    preempted: list[Eviction]
    """The evictions for others."""
    by: Counter[str]
    """How many went in each way."""
    waits: list[float]
    gang_waits: list[float]
    groups: list[PodGroupRow]
    running: int
    free: tuple[float, float]


_METRICS: dict[str, tuple[str, Callable[[_Numbers], float]]] = {
    "evictions": ("evicted for others", lambda of: len(of.preempted)),
    "evictions-by-drain": ("evicted by a drain", lambda of: of.by["drain"]),
    "lost-with-nodes": ("lost with their nodes", lambda of: of.by["node lost"]),
    "waiting": ("waiting in the end", lambda of: len(of.result.reasons)),
    "waiting-preemptors": ("waiting, and giveway preempts for them", lambda of: of.result.waiting_preemptors()),
    "running": ("running in the end", lambda of: of.running),
    "placed": ("placed", lambda of: len(of.waits)),
    "refused": ("refused by admission", lambda of: len(of.result.history.refused)),
    "work-lost": (
        "work lost since start or last checkpoint",
        lambda of: round(sum(row.lost for row in of.evictions), 3),
    ),
    "placed-p50": ("time until placed, half", lambda of: _at(of.waits, 0.5)),
    "placed-p99": ("time until placed, 99 %", lambda of: _at(of.waits, 0.99)),
    "placed-max": ("time until placed, the last", lambda of: _at(of.waits, 1.0)),
    "evictions-per-owner": (
        "evictions of the owner with the most",
        lambda of: max(Counter(row.owner for row in of.preempted).values(), default=0),
    ),
    "evicted-again": ("evictions of owners evicted before", lambda of: _again(of.preempted)),
    "cycles": ("evictions for one that the owner had evicted before", lambda of: _cycles(of.preempted)),
    "gangs-bound": ("gangs placed", lambda of: len(of.gang_waits)),
    "gangs-waiting": ("gangs waiting in the end", lambda of: sum(row.waits for row in of.groups)),
    "gangs-placed-p50": ("time until placed, half of the gangs", lambda of: _at(of.gang_waits, 0.5)),
    "gangs-placed-max": ("time until placed, the last gang", lambda of: _at(of.gang_waits, 1.0)),
    "groups-evicted-whole": ("groups evicted whole", lambda of: sum(row.whole for row in of.groups)),
    "groups-broken": ("groups left below their minimum", lambda of: sum(row.broken for row in of.groups)),
    "budget-refusals": ("evictions that a disruption budget refused", lambda of: of.result.history.budget_refusals),
    "plans-failed": (
        "plans that ended without a bound pod",
        lambda of: sum(number for ending, number in of.result.history.endings.items() if ending != "bound"),
    ),
    "cannot-be-judged": ("rules that the snapshot cannot answer", lambda of: len(of.result.policies.left_out)),
    "cpu-free": ("share of all CPU that is free in the end", lambda of: round(of.free[0], 4)),
    "memory-free": ("share of all memory that is free in the end", lambda of: round(of.free[1], 4)),
}
METRICS = {name: words for name, (words, _) in _METRICS.items()}
"""What can be asked of a run in `--fail-on`, in words; of pods unless it says otherwise, times in seconds."""


def summarize(name: str, result: Running) -> Summary:
    """The answers to one run."""
    stories = list(result.history.pods.values())
    evictions = _evictions(result)
    room, free = _room(result)
    groups = pod_groups(result)
    namespaces = _grouped(result, lambda pod: pod.metadata.namespace)
    numbers = _Numbers(
        result,
        evictions,
        preempted=[row for row in evictions if row.is_preemption],
        by=Counter(row.by for row in evictions),
        waits=sorted(story.waited for story in stories if story.waited is not None),
        gang_waits=sorted(row.waited for row in groups if row.waited is not None),
        groups=groups,
        running=sum(group.running for group in namespaces),
        free=free,
    )
    nodes = _grouped(result, lambda pod: pod.spec.node_name)
    waiting: dict[str, list[str]] = {}
    for key, reason in sorted(result.reasons.items()):
        waiting.setdefault(reason, []).append(key)
    return Summary(
        name=name,
        seconds=result.seconds,
        at_rest=result.at_rest,
        metrics={name: measure(numbers) for name, (_, measure) in _METRICS.items()},
        namespaces=namespaces,
        owners=_grouped(result, owner_of),
        classes=_grouped(result, lambda pod: pod.spec.priority_class_name or "-"),
        nodes=[node for node in nodes if node.name and (node.placed or node.evicted)],
        waiting=[
            WaitingRow(reason=reason, pods=len(keys), examples=keys[:_EXAMPLES])
            for reason, keys in sorted(waiting.items(), key=lambda item: (-len(item[1]), item[0]))
        ],
        evictions=evictions,
        placements=sorted(
            (story.placed, key_of(story.pod), owner_of(story.pod), story.pod.spec.node_name)
            for story in stories
            if story.placed is not None
        ),
        limits=_limits(result, evictions),
        room=room,
        groups=groups,
        plans=dict(sorted(result.history.endings.items())),
        refused=dict(sorted(result.history.refused.items())),
        warnings=dict(sorted(result.admission.warnings.items())),
        cannot_be_judged=dict(sorted(result.policies.left_out.items())),
        not_played=dict(sorted((not_played(result.tracker) | result.admission.not_played).items())),
        notes=result.history.notes,
        errors=result.errors,
    )


def _evictions(result: Running) -> list[Eviction]:
    """All evictions in their order, each with the owner of the pod that it was for."""
    owners = {key_of(story.pod): owner_of(story.pod) for story in result.history.pods.values()}
    rows = [story.eviction for story in result.history.pods.values() if story.eviction is not None]
    for row in rows:
        preemptor = result.tracker.pod(row.preemptor)
        row.preemptor_owner = owners.get(row.preemptor) or (owner_of(preemptor) if preemptor is not None else "")
    return sorted(rows, key=lambda row: (row.at, row.pod))


def _again(evictions: Iterable[Eviction]) -> int:
    """How many evictions were of an owner of which some pod had been evicted at an earlier time."""
    first: dict[str, float] = {}
    return sum(first.setdefault(row.owner, row.at) < row.at for row in evictions)


def _cycles(evictions: Iterable[Eviction]) -> int:
    """How many evictions closed a cycle: their owner had evicted the preemptor's before, itself or through others."""
    evicted_for: dict[str, set[str]] = {}
    number = 0
    for row in evictions:
        if row.preemptor_owner and row.owner != row.preemptor_owner:
            above = {row.preemptor_owner}
            for owner in (queue := [row.preemptor_owner]):
                queue += (more := evicted_for.get(owner, set()) - above)
                above |= more
            number += row.owner in above
            evicted_for.setdefault(row.owner, set()).add(row.preemptor_owner)
    return number


def _at(ordered: list[float], share: float) -> float:
    """The value below which that share of them lies (nearest rank); 0 without any."""
    return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)], 3) if ordered else 0.0


def _grouped(result: Running, name_of: Callable[[Pod], str]) -> list[Group]:
    """Groups in which something happened or waits first, the rest by name."""
    groups: dict[str, Group] = {}

    def group_of(pod: Pod) -> Group:
        name = name_of(pod)
        return groups.get(name) or groups.setdefault(name, Group(name=name))

    for pod in result.tracker.all("Pod").values():
        if not is_terminal(pod):
            group = group_of(pod)
            if pod.spec.node_name:
                group.running += 1
            elif not pod.metadata.deletion_timestamp:
                group.waiting += 1
    for story in result.history.pods.values():
        group = group_of(story.pod)
        if story.eviction is not None:
            group.evicted += 1
            group.lost += story.eviction.lost
        if story.waited is not None:
            group.placed += 1
            group.longest = max(group.longest or 0.0, story.waited)
    for group in groups.values():
        group.lost = round(group.lost, 3)
        group.longest = None if group.longest is None else round(group.longest, 3)
    return sorted(groups.values(), key=lambda row: (-row.evicted, -row.waiting, -row.placed, row.name))


def _limits(result: Running, evictions: Iterable[Eviction]) -> list[LimitRow]:
    """Each owner's evictions under a policy that limits them at all times."""
    rates: dict[str, Rate] = {
        policy.name: policy.limits.per_owner
        for policy in result.policies.policies.preemption
        if policy.limits.per_owner is not None and policy.limits.per_owner.schedule is None
    }
    times: dict[tuple[str, str], list[float]] = {}
    for eviction in evictions:
        if eviction.policy in rates:
            times.setdefault((eviction.owner, eviction.policy), []).append(eviction.at)
    rows = []
    for (owner, policy), instants in times.items():
        rate = rates[policy]
        most = max(sum(at <= other < at + rate.window for other in instants) for at in instants)
        allowed, window = rate.evictions, rate.window
        rows.append(
            LimitRow(owner=owner, evicted=len(instants), most=most, allowed=allowed, window=window, policy=policy)
        )
    return sorted(rows, key=lambda row: (-row.evicted, row.owner))


def _room(result: Running) -> tuple[list[Room], tuple[float, float]]:
    """What is free on every node, the fullest first, and of the whole cluster (CPU, memory)."""
    nodes = result.scheduler.snapshot.nodes
    known = nodes.known()
    has = np.maximum(nodes.allocatable[:2, known], 1)
    free = np.maximum(nodes.allocatable[:2, known] - nodes.used[:2, known], 0)
    rows = [
        Room(
            node=nodes.names[row],
            cpu=round(float(free[0, at] / has[0, at]), 4),
            memory=round(float(free[1, at] / has[1, at]), 4),
            pods=int(nodes.pod_count[row]),
        )
        for at, row in enumerate(known.tolist())
    ]
    total = has.sum(axis=1)
    shares = (float(free[0].sum() / total[0]), float(free[1].sum() / total[1])) if len(known) else (0.0, 0.0)
    return sorted(rows, key=lambda row: (row.cpu, row.node)), shares
