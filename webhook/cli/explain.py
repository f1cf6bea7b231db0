"""`giveway explain NAMESPACE/NAME`: why a pod waits, who could evict it, or who did; reads only."""

from __future__ import annotations

import asyncio
import difflib
from contextlib import suppress
from pathlib import Path

import click

from webhook.cli.explain_show import explain_alone, show
from webhook.cli.explain_workload import KINDS, explain_workload, read_evictions
from webhook.cli.options import IN_FORCE_BY_DEFAULT, options
from webhook.cli.output import literal, people_console
from webhook.cli.running import runs
from webhook.component_base.own_names import IN_FORCE
from webhook.inspection.pod_events import Told, decisions_against, told_of
from webhook.inspection.reading import NoPoliciesError, read_policies
from webhook.kube.client import Client
from webhook.kube.endpoint import ConfigError
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import POD
from webhook.policy.files.loading import load_or_raise
from webhook.policy.shapes.findings import PolicyError
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.kinds import SNAPSHOT_KINDS, SnapshotKind
from webhook.preemption.victims.rules import kubernetes_rules
from webhook.reconciler.clock import SteadyClock
from webhook.reconciler.evaluate.eviction_record import NOTHING
from webhook.reconciler.preemptors import PolicySet
from webhook.reconciler.reporting import DEVICES_TAKEN
from webhook.reconciler.state.state import State
from webhook.simulation.cluster_file.format import ClusterFileError, read_cluster
from webhook.simulation.judgeable import check_judgeable
from webhook.simulation.simulated_reconciler import offline_state

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
