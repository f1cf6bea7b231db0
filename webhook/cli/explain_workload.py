"""`giveway explain workload KIND/NAME`: how often a workload was evicted, when, and for whom."""

from __future__ import annotations

import difflib
import time
from collections import Counter
from collections.abc import Iterable, Iterator

import click

from webhook.cli.output import literal, people_console
from webhook.kube.client import Client
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.instants import rfc3339
from webhook.kube.lease import Lease
from webhook.kube.pods import WORKLOADS
from webhook.kube.resources import LEASE, Resource
from webhook.policy.model.policies import Policies
from webhook.reconciler.evaluate.workload_history import KEPT_SECONDS, MOST_EVICTIONS, PastEviction, read_history
from webhook.reconciler.plans.eviction_ledger import EVICTIONS, read_ledger
from webhook.reconciler.plans.history_store import HISTORY, history_lease

_SHOWN = 20
_NOBODY_KNOWS = "somebody that is told within a minute, or never by a leader that was killed"
_SHORT = {"deploy": "Deployment", "sts": "StatefulSet", "ds": "DaemonSet", "rs": "ReplicaSet", "cj": "CronJob"}

KINDS = _SHORT | {resource: workload.kind for (_, resource), workload in WORKLOADS.items()}
KINDS |= {kind.lower(): kind for kind in KINDS.values()}
"""The kinds of workloads by their names, as kubectl takes them in lower case."""


def workload_named(name: str, namespace: str, known: Iterable[str] = ()) -> str:
    """`Kind/namespace/name` of `KIND/NAME`, the kind as kubectl takes it (`deploy`, `jobs`); raises UsageError.

    Other kinds are found among those of the `known` workloads, whether in capitals or not.
    """
    kind, slash, own = name.partition("/")
    if not slash or not kind or not own or "/" in own:
        raise click.UsageError("name one workload: giveway explain workload KIND/NAME -n NAMESPACE")
    kinds = KINDS | {spelling.lower(): spelling for spelling in (each.partition("/")[0] for each in known)}
    return f"{kinds.get(kind.lower(), kind)}/{namespace}/{own}"


async def read_past(client: Client, namespace: str, lease: str) -> dict[str, list[PastEviction]]:
    """The evictions of every workload, with times since the epoch. Raises ApiError, ClickException for others' text.

    The last ones are on the Lease that is led by: the history is written once a minute.
    """
    try:
        written = read_history(await _annotation(client, LEASE.path(namespace, history_lease(lease)), HISTORY))
        ledger = read_ledger(await _annotation(client, LEASE.path(namespace, lease), EVICTIONS))
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    past = dict(written.workloads)
    for _, at, eviction in sorted(ledger.evictions, key=lambda row: row[1]):
        if at > written.at and eviction.owner:
            past[eviction.owner] = [*past.get(eviction.owner, ()), PastEviction(at, "")]
    return past


async def _annotation(client: Client, path: str, key: str) -> str:
    """What a Lease tells; nothing if there is none."""
    lease = await unless_absent(client.get(path, Lease))
    return (lease.metadata.annotations or {}).get(key, "") if lease is not None else ""


async def check_there(client: Client, workload: str, past: dict[str, list[PastEviction]]) -> None:
    """Raise ClickException for a workload that is not there and of which nothing is known, so that a typo is none.

    Kinds of others are believed if one of them was evicted. Raises ApiError.
    """
    kind, namespace, name = workload.split("/")
    if workload in past:
        return
    places = {known.kind: place for place, known in WORKLOADS.items()}
    if kind not in places:
        if any(known.startswith(f"{kind}/") for known in past):
            return
        near = difflib.get_close_matches(kind, places, n=1)
        raise click.ClickException(
            f"nothing of kind {kind} was evicted in the last 30 days, and it is no workload of Kubernetes: there are"
            f" {', '.join(places)}" + (f"; did you mean {near[0]}?" if near else "")
        )
    group, plural = places[kind]
    try:
        there = await unless_absent(client.get(Resource(group, "v1", plural, kind).path(namespace, name)))
    except ApiError as error:
        if error.status != 403:
            raise
        return
    if there is None:
        raise click.ClickException(f"there is no {kind} {namespace}/{name}, and no eviction of one is known")


def explain_workload(workload: str, past: dict[str, list[PastEviction]], policies: Policies | None) -> None:
    """Print how often the workload was evicted, for whom, whom it evicted, and what the policies' limits leave."""
    console, now = people_console(), time.time()
    evictions = [eviction for eviction in past.get(workload, []) if eviction.at > now - KEPT_SECONDS]
    if not evictions:
        console.print(f"No eviction of {literal(workload)} is known of the last 30 days.")
    else:
        many = " at least, more are not remembered" if len(evictions) == MOST_EVICTIONS else ""
        parts = [
            f"{sum(eviction.at > now - seconds for eviction in evictions)} in the last {words}"
            for words, seconds in (("hour", 3600), ("day", 86_400), ("week", 7 * 86_400), ("30 days", KEPT_SECONDS))
        ]
        console.print(f"{literal(workload)} was evicted: {', '.join(parts)}{many}.")
        for eviction in evictions[: -_SHOWN - 1 : -1]:
            console.print(f"  {rfc3339(eviction.at)}  for {literal(eviction.preemptor or _NOBODY_KNOWS)}")
        if len(evictions) > _SHOWN:
            console.print(f"  and {len(evictions) - _SHOWN} before that")
    own = Counter(
        victim
        for victim, rows in past.items()
        for row in rows
        if row.preemptor == workload and row.at > now - KEPT_SECONDS
    )
    if own:
        names = ", ".join(f"{victim} ({count})" for victim, count in own.most_common(_SHOWN))
        console.print(f"For its pods were evicted in the last 30 days: {literal(names)}.")
    for cycle in _cycles(workload, past, now):
        console.print(f"[yellow]Cycle:[/yellow] {literal(' evicted '.join(cycle))}.")
    for policy in policies.preemption if policies else ():
        if (limit := policy.limits.per_workload) is not None:
            used = sum(eviction.at > now - limit.window for eviction in evictions)
            left = max(0, limit.evictions - used)
            console.print(
                f"Policy {literal(policy.name)} lets {left} more of {limit.evictions} go (limits.perWorkload)."
            )


def _cycles(workload: str, past: dict[str, list[PastEviction]], now: float) -> Iterator[list[str]]:
    """The shortest ways on which evictions of the last 30 days lead from a workload to itself, one a first victim."""
    by: dict[str, set[str]] = {}
    for victim, rows in past.items():
        for row in rows:
            if row.preemptor and row.preemptor != victim and row.at > now - KEPT_SECONDS:
                by.setdefault(row.preemptor, set()).add(victim)
    for first in sorted(by.get(workload, ())):
        before = {first: ""}
        for evictor in (queue := [first]):
            new = sorted(by.get(evictor, set()) - before.keys())
            before |= dict.fromkeys(new, evictor)
            queue += new
        if workload in before:
            way = [workload]
            while way[-1] != first:
                way.append(before[way[-1]])
            yield [workload, *reversed(way)]
