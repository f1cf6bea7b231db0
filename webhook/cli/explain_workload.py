"""`giveway explain workload KIND/NAME`: how often a workload was evicted, when, and for whom."""

from __future__ import annotations

import time
from collections import Counter

import click

from webhook.cli.output import literal, people_console
from webhook.kube.client import ApiError, Client
from webhook.kube.instants import rfc3339
from webhook.kube.lease import Lease
from webhook.kube.resources import LEASE
from webhook.policy.model import Policies
from webhook.reconciler.evaluate.workload_history import KEPT_SECONDS, MOST_EVICTIONS, PastEviction, read_history
from webhook.reconciler.plans.history_store import HISTORY

__all__ = ["explain_workload", "read_past", "workload_named"]

_SHOWN = 20
_NOBODY_KNOWS = "a leader that was killed did not tell"


def workload_named(name: str, namespace: str) -> str:
    """`Kind/namespace/name` of `KIND/NAME`; the kind is taken as it is written. Raises UsageError."""
    kind, slash, own = name.partition("/")
    if not slash or not kind or not own or "/" in own:
        raise click.UsageError("name one workload: giveway explain workload KIND/NAME -n NAMESPACE")
    return f"{kind}/{namespace}/{own}"


async def read_past(client: Client, namespace: str, lease: str) -> dict[str, list[PastEviction]]:
    """The evictions of every workload, with times since the epoch. Raises ApiError, ClickException for others' text."""
    try:
        found = await client.get(LEASE.path(namespace, lease), Lease)
    except ApiError as error:
        if error.status == 404:
            return {}
        raise
    try:
        return dict(read_history((found.metadata.annotations or {}).get(HISTORY, "")).workloads)
    except ValueError as error:
        raise click.ClickException(str(error)) from error


def explain_workload(workload: str, past: dict[str, list[PastEviction]], policies: Policies | None) -> None:
    """Print how often the workload was evicted, for whom, whom it evicted, and what the policies' limits leave."""
    console, now = people_console(), time.time()
    evictions = [one for one in past.get(workload, []) if one.at > now - KEPT_SECONDS]
    if not evictions:
        console.print(f"No eviction of {literal(workload)} is known of the last 30 days.")
    else:
        many = " at least, more are not remembered" if len(evictions) == MOST_EVICTIONS else ""
        parts = [
            f"{sum(one.at > now - seconds for one in evictions)} in the last {words}"
            for words, seconds in (("hour", 3600), ("day", 86_400), ("week", 7 * 86_400), ("30 days", KEPT_SECONDS))
        ]
        console.print(f"{literal(workload)} was evicted: {', '.join(parts)}{many}.")
        for one in evictions[: -_SHOWN - 1 : -1]:
            console.print(f"  {rfc3339(one.at)}  for {literal(one.preemptor or _NOBODY_KNOWS)}")
        if len(evictions) > _SHOWN:
            console.print(f"  and {len(evictions) - _SHOWN} before that")
    own = Counter(
        victim
        for victim, rows in past.items()
        for one in rows
        if one.preemptor == workload and one.at > now - KEPT_SECONDS
    )
    if own:
        names = ", ".join(f"{victim} ({count})" for victim, count in own.most_common(_SHOWN))
        console.print(f"For its pods were evicted in the last 30 days: {literal(names)}.")
    for victim in sorted(own.keys() & {one.preemptor for one in evictions}):
        console.print(f"[yellow]Cycle:[/yellow] it and {literal(victim)} evict each other.")
    for policy in policies.preemption if policies else ():
        if (limit := policy.limits.per_workload) is not None:
            used = sum(one.at > now - limit.window for one in evictions)
            left = max(0, limit.evictions - used)
            console.print(
                f"Policy {literal(policy.name)} lets {left} more of {limit.evictions} go (limits.perWorkload)."
            )
