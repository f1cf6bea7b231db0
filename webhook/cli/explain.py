"""`giveway explain`: why a pod waits, who could evict it, or who did; how often a workload was evicted. Reads only."""

from __future__ import annotations

import asyncio
import difflib
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import click

from webhook.cli.explain_show import explain_alone, show
from webhook.cli.options import IN_FORCE_BY_DEFAULT, options
from webhook.cli.output import literal, people_console
from webhook.cli.running import runs
from webhook.component_base.own_names import IN_FORCE, RECONCILER
from webhook.inspection.pod_events import Told, decisions_against, told_of
from webhook.inspection.reading import NoPoliciesError, read_policies
from webhook.kube.client import Client
from webhook.kube.endpoint import ConfigError
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.instants import rfc3339
from webhook.kube.lease import Lease
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import WORKLOADS
from webhook.kube.resources import LEASE, POD, Resource
from webhook.policy.files.loading import load_or_raise
from webhook.policy.model.policies import Policies
from webhook.policy.shapes.findings import PolicyError
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.kinds import SNAPSHOT_KINDS, SnapshotKind
from webhook.preemption.victims.rules import kubernetes_rules
from webhook.reconciler.clock import SteadyClock
from webhook.reconciler.evaluate.eviction_record import NOTHING, EvictionRecord, decode
from webhook.reconciler.evaluate.workload_history import KEPT_SECONDS, MOST_EVICTIONS, PastEviction
from webhook.reconciler.plans.eviction_store import EVICTIONS, evictions_lease
from webhook.reconciler.preemptors import PolicySet
from webhook.reconciler.reporting import DEVICES_TAKEN
from webhook.reconciler.state.state import State
from webhook.simulation.cluster_file.format import ClusterFileError, read_cluster
from webhook.simulation.judgeable import check_judgeable
from webhook.simulation.simulated_reconciler import offline_state

_MOST_SHOWN = 20
"""Evictions that are shown."""
_NOBODY_KNOWS = "a pod that is not known any more"
_SHORT = {"deploy": "Deployment", "sts": "StatefulSet", "ds": "DaemonSet", "rs": "ReplicaSet", "cj": "CronJob"}
_PLACES = {workload.kind: place for place, workload in WORKLOADS.items()}
"""Group and plural of each kind."""

KINDS = _SHORT | {plural: kind for kind, (_, plural) in _PLACES.items()} | {kind.lower(): kind for kind in _PLACES}
"""The kinds of workloads by their names, as kubectl takes them in lower case."""
Past = Mapping[str, Sequence[PastEviction]]
"""The evictions of every workload, by `Kind/namespace/name`, with times since the epoch."""


_LONGEST = 60.0
"""Seconds that reading the cluster may take."""
_SHOWN = 10
"""Events that are shown."""
_PODS = ("pod", "pods", "po")


@click.command("explain")
@click.argument("target", nargs=-1, required=True, metavar="[pod] NAMESPACE/NAME | [workload] KIND/NAME")
@options(
    "namespace",
    "kubeconfig",
    "policies",
    "system-namespace",
    namespace={"default": None, "help": "The namespace, if the name stands alone. By default: default."},
    policies=IN_FORCE_BY_DEFAULT,
)
@click.option(
    "--snapshot",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Explain a pod of a snapshot, or of lists of `kubectl get -o json`, instead of a live one. Needs --policies.",
)
@runs(ApiError, ClusterError, ConfigError, OSError, PolicyError, ClusterFileError)
async def command(
    *,
    target: tuple[str, ...],
    namespace: str | None,
    kubeconfig: str | None,
    policies: Path | None,
    system_namespace: str,
    files: tuple[Path, ...],
) -> None:
    """Say why a pod waits and what preemption would do, who could evict a running one, who evicted one that is gone.

    Of a pending pod: whether it is acted for, what fails on every node, who is protected by what, what would happen.
    Of a running one: who could evict it, for pods of which classes, by which rule, and from when. Of one that is gone:
    what its Events and the decisions on other pods tell. Of a workload (`deployment/web -n shop`): how often it was
    evicted, when, and for which workloads.

    It reads the cluster as the reconciler does, and writes nothing. Without the rights for that it says what the pod
    itself and its Events tell, which the role view lets its owners read.
    """
    kind, own, name = _target(target, namespace)
    key = f"{own}/{name}"
    if files and not kind:
        if policies is None:
            raise click.UsageError("--snapshot needs --policies: a snapshot does not hold the policies in force")
        _explain_offline(key, policies, files)
        return
    async with await Client.connect(kubeconfig) as client:
        if kind:
            await explain_workload(client, kind, key, system_namespace, policies)
            return
        pod = await _read_pod(client, key)
        told = await told_of(client, own, name, pod.metadata.uid if pod is not None else "")
        if pod is None:
            await _explain_gone(client, own, name, told)
            return
        policy_set, unreadable, absent = None, list[str](), ""
        try:
            policy_set = PolicySet(await read_policies(client, policies, system_namespace))
        except NoPoliciesError as error:
            if error.is_forbidden:
                unreadable = [f"the policies in force (ConfigMap {system_namespace}/{IN_FORCE})"]
            else:
                absent = str(error)
        unreadable += await _unlistable(client)
        if policy_set is None or unreadable:
            explain_alone(pod, policy_set, unreadable, absent)
        else:
            state, record = await _read_cluster(client, policy_set), NOTHING
            with suppress(ApiError):  # who may not read it is not told which rates are used up
                record = await read_evictions(client, system_namespace)
            show(state.pods.get(key) or pod, state, policy_set, record=record)
    _print_told(told)


def _target(words: tuple[str, ...], namespace: str | None) -> tuple[str, str, str]:
    """What the command line names: the kind of a workload, empty for a pod, then namespace and name.

    Without a namespace `jobs/a` is a pod of namespace jobs. Raises UsageError.
    """
    parts = "/".join(words).split("/")
    said = parts[0] if len(parts) > 1 and (parts[0] in _PODS or words[0] == "workload") else ""
    parts = parts[1:] if said else parts
    is_kind = len(parts) == 2 and parts[0].lower() in KINDS and (namespace is not None or len(words) > 1)
    wrong = not all(parts) or len(parts) > 2 or (len(words) > 1 and not said and not is_kind)
    if wrong or (said == "workload" and len(parts) == 1):
        raise click.UsageError(
            "name one pod or workload: giveway explain NAMESPACE/NAME, giveway explain NAME -n NAMESPACE, or giveway"
            " explain KIND/NAME -n NAMESPACE"
        )
    if said == "workload" or (is_kind and not said):
        return parts[0], namespace or "default", parts[1]
    if len(parts) == 1:
        return "", namespace or "default", parts[0]
    if namespace not in (None, parts[0]):
        kinds = difflib.get_close_matches(parts[0].lower(), KINDS, n=1)
        hint = f"; did you mean {kinds[0]}/{parts[1]}?" if kinds else ""
        raise click.UsageError(f"{parts[0]}/{parts[1]} is not in namespace {namespace}{hint}")
    return "", parts[0], parts[1]


def _explain_offline(key: str, policies: Path, files: tuple[Path, ...]) -> None:
    """Explain a pod of a cluster file."""
    policy_set, objects = PolicySet(load_or_raise(policies)), read_cluster(files)
    check_judgeable(policy_set.policies, objects)
    state = offline_state(objects, policy_set.annotations() | kubernetes_rules().annotations)
    if (pod := state.pods.get(key)) is None:
        raise click.ClickException(f"there is no pod {key} in {', '.join(map(str, files))}")
    show(pod, state, policy_set, SteadyClock(lambda: objects.taken_at, lambda: 0.0))


async def _read_pod(client: Client, key: str) -> Pod | None:
    """The pod; None if there is none. Raises ApiError."""
    try:
        return await unless_absent(client.get(POD.path(*key.split("/")), Pod))
    except ApiError as error:
        if error.status == 403:
            raise ApiError(403, error.reason, f"you may not read pod {key}: the role view lets its owners") from error
        raise


async def _unlistable(client: Client) -> list[str]:
    """What of the cluster may not be listed, of what a decision needs."""

    async def refused(kind: SnapshotKind) -> bool:
        try:
            await anext(aiter(client.pages(kind.resource.path(), dict, limit=1)), None)
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            return error.status == 403
        return False

    answers = await asyncio.gather(*map(refused, SNAPSHOT_KINDS))
    return [kind.resource.plural for kind, is_refused in zip(SNAPSHOT_KINDS, answers, strict=True) if is_refused]


async def _read_cluster(client: Client, policy_set: PolicySet) -> State:
    """The cluster as the reconciler knows it. Raises ApiError if that takes too long."""
    state = State(client, policy_set.annotations() | kubernetes_rules().annotations)
    tasks = [asyncio.create_task(state.run()), asyncio.create_task(state.wait_for_sync())]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=_LONGEST)
    if not state.synced:
        text = f"the cluster could not be listed within {_LONGEST:.0f} s; see the log lines above"
        raise ApiError(0, "Timeout", text)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return state


async def _explain_gone(client: Client, namespace: str, name: str, told: list[Told]) -> None:
    """Say who evicted a pod that is not there, as far as anything tells. Raises ClickException if nothing does."""
    key, decisions = f"{namespace}/{name}", await decisions_against(client, namespace, name)
    if not told and not decisions:
        raise click.ClickException(
            f"there is no pod {key}, and no Event or decision that may be read tells of one. Events are kept for about"
            " an hour, decisions as long as their preemptors. The reconciler's log has all evictions; Prometheus knows"
            " how many there were in this namespace, by policy and rule:\n  sum by (policy, rule)"
            f' (increase(giveway_evictions_total{{namespace="{namespace}"}}[1d])) > 0'
        )
    console = people_console()
    console.print(f"There is no pod {literal(key)} now.")
    for preemptor, record in decisions:
        victim = next(victim for victim in record.victims if victim.pod == key)
        goes = f"that it goes from node {record.node} for {preemptor}, by {victim.rule}: {victim.because}."
        console.print(literal(f"giveway decided at {record.at} {goes}"))
    _print_told(told)


def _print_told(told: list[Told]) -> None:
    """Print the newest Events of a pod; those first that say who took the devices which its plan had emptied."""
    console = people_console()
    taken = [entry for entry in told if not entry.is_earlier and entry.reason == DEVICES_TAKEN]
    for entry in taken[-_SHOWN:]:
        console.print(f"Others took devices that a plan had emptied for it, at {entry.at}: {literal(entry.note)}.")
    others = [entry for entry in told if not entry.is_earlier and entry.reason != DEVICES_TAKEN]
    earlier = [entry for entry in told if entry.is_earlier]
    for title, entries in (("What was told of it", others), ("What was told of an earlier pod of its name", earlier)):
        if entries:
            console.print(f"\n{title} (Events):")
        for entry in entries[-_SHOWN:]:
            console.print(f"  {literal(str(entry))}", soft_wrap=True)


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
        for eviction in evictions[: -_MOST_SHOWN - 1 : -1]:
            console.print(f"  {rfc3339(eviction.at)}  for {literal(eviction.preemptor or _NOBODY_KNOWS)}")
        if len(evictions) > _MOST_SHOWN:
            console.print(f"  and {len(evictions) - _MOST_SHOWN} before that")
    for policy in policies.preemption:
        if (limit := policy.limits.per_workload) is not None:
            used = sum(eviction.at > now - limit.window for eviction in evictions)
            left = f"{max(0, limit.evictions - used)} more of {limit.evictions}"
            console.print(f"Policy {literal(policy.name)} lets {left} go (limits.perWorkload).")
