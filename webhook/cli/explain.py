"""`giveway explain`: why a pod waits, who could evict it, or who did; how often a workload was evicted. Reads only."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import click

from webhook.cli.explain_show import explain_alone, show
from webhook.cli.options import IN_FORCE_BY_DEFAULT, options
from webhook.cli.output import literal, people_console
from webhook.cli.running import runs
from webhook.component_base.own_names import IN_FORCE, RECONCILER
from webhook.inspection.pod_events import Told, decisions_against, told_of
from webhook.inspection.reading import NoPoliciesError, items_of, read_policies, unless_refused
from webhook.kube.client import Client
from webhook.kube.endpoint import ConfigError
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.instants import rfc3339
from webhook.kube.lease import Lease
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import LEASE, POD
from webhook.policy.model.policies import Policies
from webhook.policy.shapes.findings import PolicyError
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.kinds import SNAPSHOT_KINDS, SnapshotKind
from webhook.preemption.victims.rules import kubernetes_rules
from webhook.reconciler.evictions.log import KEPT_SECONDS
from webhook.reconciler.evictions.record import NOTHING, EvictionRecord, decode
from webhook.reconciler.evictions.store import EVICTIONS, evictions_lease
from webhook.reconciler.preemptors import PolicySet
from webhook.reconciler.state.state import State

_MOST_SHOWN = 20
"""Events and evictions that are shown."""


@click.command("explain")
@click.argument("target", nargs=-1, required=True, metavar="[pod] NAMESPACE/NAME | workload KIND/NAME")
@options(
    "namespace",
    "kubeconfig",
    "policies",
    "system-namespace",
    namespace={"default": None, "help": "The namespace, if the name stands alone. By default: default."},
    policies=IN_FORCE_BY_DEFAULT,
)
@runs(ApiError, ClusterError, ConfigError, OSError, PolicyError)
async def command(
    *,
    target: tuple[str, ...],
    namespace: str | None,
    kubeconfig: str | None,
    policies: Path | None,
    system_namespace: str,
) -> None:
    """Say why a pod waits and what preemption would do, who could evict a running one, who evicted one that is gone.

    Of a pending pod: whether it is acted for, what fails on every node, who is protected by what, what would happen.
    Of a running one: who could evict it, for pods of which classes, by which rule, and from when. Of one that is gone:
    what its Events and the decisions on other pods tell. Of a workload (`workload Deployment/web -n shop`): how often
    it was evicted, when, and for which workloads. `giveway decide --explain` says it of a pod of a snapshot.

    It reads the cluster as the reconciler does, and writes nothing. Without the rights for that it says what the pod
    itself and its Events tell, which the role view lets its owners read.
    """
    is_workload, own, name = _target(target, namespace)
    async with await Client.connect(kubeconfig) as client:
        policy_set, unreadable, absent = None, list[str](), ""
        try:
            policy_set = PolicySet(await read_policies(client, policies, system_namespace))
        except NoPoliciesError as error:
            if error.is_forbidden:
                unreadable.append(f"the policies in force (ConfigMap {system_namespace}/{IN_FORCE})")
            else:
                absent = str(error)
        if is_workload:
            record = await read_evictions(client, system_namespace)
            print_workload(own, name, record, policy_set.policies if policy_set else Policies())
            return
        pod = await _read_pod(client, f"{own}/{name}")
        told = await told_of(client, own, name, pod.metadata.uid if pod is not None else "")
        if pod is None:
            await _explain_gone(client, own, name, told)
            return
        state, missing = await _read_cluster(client, policy_set or PolicySet(Policies()))
        unreadable += missing
        if policy_set is None or unreadable:
            names = ", ".join(unreadable)
            refused = f"you may not read {names} of the whole cluster" if names else ""
            explain_alone(pod, policy_set, ", and ".join(filter(None, (refused, absent))))
        else:
            record = NOTHING
            with suppress(ApiError):  # who may not read it is not told which rates are used up
                record = await read_evictions(client, system_namespace)
            show(state.pods.get(f"{own}/{name}") or pod, state, policy_set, record=record)
    _print_told(told)


def _target(words: tuple[str, ...], namespace: str | None) -> tuple[bool, str, str]:
    """What the command line names: whether a workload, its namespace, and its name, `KIND/NAME` of a workload.

    Raises UsageError.
    """
    parts = "/".join(words).split("/")
    word = parts.pop(0) if len(parts) > 1 and parts[0] in ("pod", "workload") else ""
    is_workload = word == "workload"
    if not all(parts) or len(words) > 1 + bool(word) or len(parts) > 2 or (is_workload and len(parts) == 1):
        raise click.UsageError(
            "name one pod or workload: giveway explain NAMESPACE/NAME, giveway explain NAME -n NAMESPACE, or giveway"
            " explain workload KIND/NAME -n NAMESPACE"
        )
    if is_workload or len(parts) == 1:
        return is_workload, namespace or "default", "/".join(parts)
    if namespace not in (None, parts[0]):
        raise click.UsageError(f"pod {parts[0]}/{parts[1]} is not in namespace {namespace}")
    return False, parts[0], parts[1]


async def _read_pod(client: Client, key: str) -> Pod | None:
    """The pod; None if there is none. Raises ApiError."""
    try:
        return await unless_absent(client.get(POD.path(*key.split("/")), Pod))
    except ApiError as error:
        if error.status == 403:
            raise ApiError(403, error.reason, f"you may not read pod {key}: the role view lets its owners") from error
        raise


async def _read_cluster(client: Client, policy_set: PolicySet) -> tuple[State, list[str]]:
    """The cluster as the reconciler knows it, and what of it may not be listed. Raises ApiError."""
    state, missing = State(client, policy_set.annotations() | kubernetes_rules().annotations), dict[str, str]()

    async def take(kind: SnapshotKind) -> None:
        async for item in items_of(client, kind.resource, kind.type_):
            if isinstance(item, kind.type_):
                state.caches[kind.resource].take(key_of(item), item)

    for kind in SNAPSHOT_KINDS:
        await unless_refused(missing, kind.resource.plural, take(kind), None)
    return state, list(missing)


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
    """Print the newest Events of a pod, and apart from them those of an earlier pod of its name."""
    console = people_console()
    for title, is_earlier in (("What was told of it", False), ("What was told of an earlier pod of its name", True)):
        if entries := [entry for entry in told if entry.is_earlier is is_earlier]:
            console.print(f"\n{title} (Events):")
        for entry in entries[-_MOST_SHOWN:]:
            console.print(f"  {literal(str(entry))}", soft_wrap=True)


async def read_evictions(client: Client, namespace: str) -> EvictionRecord:
    """What the reconciler has written of evictions. Raises ApiError, and ClickException for what it never writes."""
    lease = await unless_absent(client.get(LEASE.path(namespace, evictions_lease(RECONCILER)), Lease))
    try:
        return decode((lease.metadata.annotations or {}).get(EVICTIONS, "") if lease is not None else "")
    except ValueError as error:
        raise click.ClickException(str(error)) from error


def print_workload(namespace: str, name: str, record: EvictionRecord, policies: Policies) -> None:
    """Print how often a workload was evicted, for whom, and what the policies' limits leave; `name` is `KIND/NAME`."""
    console, now, past = people_console(), time.time(), record.of_workloads()
    kind, _, own = name.partition("/")
    asked = f"{kind}/{namespace}/{own}"
    workload = next((known for known in past if known.lower() == asked.lower()), asked)
    rows = [(record.when(row), row.eviction.preemptor) for row in past.get(workload, ())]
    evictions = [(at, preemptor) for at, preemptor in rows if at > now - KEPT_SECONDS]
    spans = (("hour", 3600), ("day", 86_400), ("week", 7 * 86_400), ("30 days", KEPT_SECONDS))
    counts = [f"{sum(at > now - span for at, _ in evictions)} in the last {words}" for words, span in spans]
    console.print(f"{literal(workload)} was evicted: {', '.join(counts)}.")
    for at, preemptor in evictions[: -_MOST_SHOWN - 1 : -1]:
        console.print(f"  {rfc3339(at)}  for {literal(preemptor or 'a pod that is not known any more')}")
    others = [known for known in past if known.split("/")[1] == namespace]
    if not evictions and others:
        console.print(f"Evicted in namespace {literal(namespace)}: {literal(', '.join(others))}")
    for policy in policies.preemption:
        if (limit := policy.limits.per_workload) is not None:
            used = sum(at > now - limit.window for at, _ in evictions)
            left = f"{max(0, limit.evictions - used)} more of {limit.evictions}"
            console.print(f"Policy {literal(policy.name)} lets {left} go (limits.perWorkload).")
