"""`giveway explain workload KIND/NAME`: how often a workload was evicted, when, and for whom."""

from __future__ import annotations

import difflib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from webhook.cli.output import literal, people_console
from webhook.component_base.own_names import RECONCILER
from webhook.inspection.reading import NoPoliciesError, read_policies
from webhook.kube.client import Client
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.instants import rfc3339
from webhook.kube.lease import Lease
from webhook.kube.pods import WORKLOADS
from webhook.kube.resources import LEASE, Resource
from webhook.policy.model.policies import Policies
from webhook.reconciler.evaluate.eviction_record import EvictionRecord, decode
from webhook.reconciler.evaluate.workload_history import KEPT_SECONDS, MOST_EVICTIONS, PastEviction
from webhook.reconciler.plans.eviction_store import EVICTIONS, evictions_lease

_SHOWN = 20
_NOBODY_KNOWS = "a pod that is not known any more"
_SHORT = {"deploy": "Deployment", "sts": "StatefulSet", "ds": "DaemonSet", "rs": "ReplicaSet", "cj": "CronJob"}
_PLACES = {workload.kind: place for place, workload in WORKLOADS.items()}
"""Group and plural of each kind."""

KINDS = _SHORT | {plural: kind for kind, (_, plural) in _PLACES.items()} | {kind.lower(): kind for kind in _PLACES}
"""The kinds of workloads by their names, as kubectl takes them in lower case."""
Past = Mapping[str, Sequence[PastEviction]]
"""The evictions of every workload, by `Kind/namespace/name`, with times since the epoch."""


async def explain_workload(client: Client, kind: str, key: str, own: str, policies: Path | None) -> None:
    """Say how often a workload was evicted, its `kind` as kubectl takes it (`deploy`, `jobs`).

    Kinds of others are found among those that were evicted. Raises ApiError, and ClickException for a workload that is
    not there and of which nothing is known, so that a typo is none.
    """
    past = (await read_evictions(client, own)).workloads
    kind = kind_named(kind, past)
    workload = f"{kind}/{key}"
    if workload not in past and kind in _PLACES:
        group, plural = _PLACES[kind]
        path = Resource(group, "v1", plural, kind).path(*key.split("/"))
        try:
            there = await unless_absent(client.get(path))
        except ApiError as error:
            if error.status != 403:
                raise
        else:
            if there is None:
                raise click.ClickException(f"there is no {kind} {key}, and no eviction of one is known")
    elif workload not in past and not any(known.startswith(f"{kind}/") for known in past):
        near = difflib.get_close_matches(kind, _PLACES, n=1)
        raise click.ClickException(
            f"nothing of kind {kind} was evicted in the last 30 days, and it is no workload of Kubernetes: there are"
            f" {', '.join(_PLACES)}" + (f"; did you mean {near[0]}?" if near else "")
        )
    try:
        known = await read_policies(client, policies, own)
    except NoPoliciesError:
        known = Policies()
    print_workload(workload, past, known)


def kind_named(name: str, past: Past) -> str:
    """The kind of a workload by a name of it, whether in capitals or not."""
    others = {kind.lower(): kind for kind in (workload.partition("/")[0] for workload in past)}
    return (KINDS | others).get(name.lower(), name)


async def read_evictions(client: Client, namespace: str) -> EvictionRecord:
    """What the reconciler has written of evictions. Raises ApiError, and ClickException for what it never writes."""
    lease = await unless_absent(client.get(LEASE.path(namespace, evictions_lease(RECONCILER)), Lease))
    try:
        return decode((lease.metadata.annotations or {}).get(EVICTIONS, "") if lease is not None else "")
    except ValueError as error:
        raise click.ClickException(str(error)) from error


def print_workload(workload: str, past: Past, policies: Policies) -> None:
    """Print how often the workload was evicted, for whom, and what the policies' limits leave."""
    console, now = people_console(), time.time()
    past = {key: [row for row in rows if row.at > now - KEPT_SECONDS] for key, rows in past.items()}
    evictions = past.get(workload, [])
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
    for policy in policies.preemption:
        if (limit := policy.limits.per_workload) is not None:
            used = sum(eviction.at > now - limit.window for eviction in evictions)
            left = f"{max(0, limit.evictions - used)} more of {limit.evictions}"
            console.print(f"Policy {literal(policy.name)} lets {left} go (limits.perWorkload).")
