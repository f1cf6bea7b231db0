"""`giveway explain`: why a pod waits, who could evict it, or who did; how often a workload was evicted. Reads only."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import click
import numpy as np

from webhook.cli.decision_shown import show_decision
from webhook.cli.options import IN_FORCE_BY_DEFAULT, options
from webhook.cli.output import people_console, print_lines, print_rows
from webhook.cli.running import runs
from webhook.component_base.own_names import RECONCILER
from webhook.inspection.cluster_findings import names
from webhook.inspection.pod_events import decisions_against, told_of
from webhook.inspection.reading import NoPoliciesError, items_of, read_policies, unless_refused
from webhook.kube.client import Client
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.instants import rfc3339, time_span
from webhook.kube.lease import Lease
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import LEASE, POD
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.values import CAN_BE_PREEMPTED, PROTECTION_DURATION, READY
from webhook.preemption.decision import decide
from webhook.preemption.gangs.gang import is_gang
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.kinds import SNAPSHOT_KINDS, SnapshotKind
from webhook.preemption.snapshot.pod_groups import group_of, with_all_of
from webhook.preemption.victims.rules import kubernetes_rules
from webhook.reconciler.clock import SteadyClock
from webhook.reconciler.evaluate.evaluation import Evaluation
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.evaluate.extender_client import ExtenderCache, Question, url_of
from webhook.reconciler.evaluate.limits import decide_sparing
from webhook.reconciler.evaluate.outcomes import Fits, Members, Unschedulable
from webhook.reconciler.evictions.log import KEPT_SECONDS, EvictionLog
from webhook.reconciler.evictions.store import EVICTIONS, NOTHING, EvictionRecord, decode, evictions_lease
from webhook.reconciler.plans.adoption import recall_evictions
from webhook.reconciler.possible_evictions import possible_evictions
from webhook.reconciler.preemptors import PolicySet, ineligible_reason, is_marked
from webhook.reconciler.state.annotations import UnreadableError, decision_of, is_ready, notice_of, plan_of
from webhook.reconciler.state.state import State

_MOST_SHOWN = 20
"""Events and evictions that are shown."""
_SPANS = {"hour": 3600.0, "day": 86_400.0, "week": 7 * 86_400.0, "30 days": KEPT_SECONDS}
"""Over which spans, in seconds, evictions of a workload are counted."""
_TARGET = re.compile("workload[ /](?P<workload>[^ /]+/[^ /]+)|(?:pod[ /])?(?:(?P<namespace>[^ /]+)/)?(?P<pod>[^ /]+)")
"""What can be asked about: a workload with its kind, or a pod with its namespace or without."""
_NAMESPACE = {"default": "", "show_default": False, "help": "Of what is named without one. By default: default."}


@click.command("explain")
@click.argument("target", nargs=-1, required=True, metavar="[pod] NAMESPACE/NAME | workload KIND/NAME")
@options("namespace", "kubeconfig", "policies", "system-namespace", namespace=_NAMESPACE, policies=IN_FORCE_BY_DEFAULT)
@runs(ClusterError, ValueError)
async def command(
    *, target: tuple[str, ...], namespace: str, kubeconfig: str | None, policies: Path | None, system_namespace: str
) -> None:
    """Say why a pod waits and what preemption would do, who could evict a running one, who evicted one that is gone.

    Of a pending pod: whether it is acted for, what fails on every node, who is protected by what, what would happen.
    Of a running one: who could evict it, for pods of which classes, by which rule, and from when. Of one that is gone:
    what its Events and the decisions on other pods tell. Of a workload (`workload Deployment/web -n shop`): how often
    it was evicted, when, and for which workloads. `giveway decide --explain` says it of a pod of a snapshot.

    It reads the cluster as the reconciler does, and writes nothing. Without the rights for that it says what the pod
    itself and its Events tell, which the role view lets its owners read.
    """
    asked, unsaid, record = _TARGET.fullmatch(" ".join(target)), list[str](), NOTHING
    if asked is None or (namespace and asked["namespace"] not in (None, namespace)):
        raise click.UsageError(
            "name one pod or workload: giveway explain NAMESPACE/NAME, giveway explain NAME -n NAMESPACE, or giveway"
            " explain workload KIND/NAME -n NAMESPACE"
        )
    async with await Client.connect(kubeconfig) as client:
        policy_set = None
        try:
            policy_set = PolicySet(await read_policies(client, policies, system_namespace))
        except NoPoliciesError as error:
            unsaid.append(str(error))
        if asked["workload"]:
            record = await read_evictions(client, system_namespace)
            known = policy_set.policies if policy_set else Policies()
            print_workload(namespace or "default", asked["workload"], record, known)
            return
        own, name = asked["namespace"] or namespace or "default", asked["pod"]
        pod = await unless_absent(client.get(POD.path(own, name), Pod))
        told = await told_of(client, own, name, pod.metadata.uid if pod is not None else "")
        if pod is None:
            await _explain_gone(client, own, name, is_told=bool(told))
        else:
            state, missing = await _read_cluster(client, policy_set or PolicySet(Policies()))
            unsaid += [f"you may not read {', '.join(missing)} of the whole cluster"] if missing else []
            with suppress(ApiError):  # who may not read it is not told which rates are used up
                record = await read_evictions(client, system_namespace)
            show_pod(state.pods.get(key_of(pod)) or pod, state, policy_set, record=record, unsaid="; ".join(unsaid))
    for title, is_earlier in (("What was told of it", False), ("What was told of an earlier pod of its name", True)):
        if entries := [str(entry) for entry in told if entry.is_earlier is is_earlier]:
            click.echo(f"\n{title} (Events):")
            print_lines(entries[-_MOST_SHOWN:], indent=2)


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


async def _explain_gone(client: Client, namespace: str, name: str, *, is_told: bool) -> None:
    """Say who evicted a pod that is not there, as far as anything tells. Raises ClickException if nothing does."""
    key, decisions = f"{namespace}/{name}", await decisions_against(client, namespace, name)
    if not is_told and not decisions:
        raise click.ClickException(
            f"there is no pod {key}, and no Event or decision that may be read tells of one. Events are kept for about"
            " an hour, decisions as long as their preemptors. The reconciler's log has all evictions; Prometheus knows"
            " how many there were in this namespace, by policy and rule:\n  sum by (policy, rule)"
            f' (increase(giveway_evictions_total{{namespace="{namespace}"}}[1d])) > 0'
        )
    lines = [f"There is no pod {key} now."]
    for preemptor, record in decisions:
        victim = next(victim for victim in record.victims if victim.pod == key)
        goes = f"that it goes from node {record.node} for {preemptor}, by {victim.rule}: {victim.because}."
        lines.append(f"giveway decided at {record.at} {goes}")
    print_lines(lines)


async def read_evictions(client: Client, namespace: str) -> EvictionRecord:
    """What the reconciler has written of evictions. Raises ApiError, and ValueError for what it never writes."""
    lease = await unless_absent(client.get(LEASE.path(namespace, evictions_lease(RECONCILER)), Lease))
    return decode((lease.metadata.annotations or {}).get(EVICTIONS, "") if lease is not None else "")


def print_workload(namespace: str, name: str, record: EvictionRecord, policies: Policies) -> None:
    """Print how often a workload was evicted, for whom, and what the policies' limits leave; `name` is `KIND/NAME`."""
    now, past = time.time(), dict.fromkeys(row.workload for row in record.evictions if "owner" in row.names)
    asked = name.replace("/", f"/{namespace}/")
    workload = next((known for known in past if known.lower() == asked.lower()), asked)
    rows = [(record.when(row), row.preemptor) for row in record.evictions if row.workload == workload]
    evictions = [(at, preemptor) for at, preemptor in rows if at > now - KEPT_SECONDS]
    counts = [f"{sum(at > now - span for at, _ in evictions)} in the last {words}" for words, span in _SPANS.items()]
    print_lines([f"{workload} was evicted: {', '.join(counts)}."])
    newest = evictions[:_MOST_SHOWN]
    print_lines((f"{rfc3339(at)}  for {who or 'a pod that is not known any more'}" for at, who in newest), indent=2)
    if not evictions and (others := [known for known in past if known.split("/")[1] == namespace]):
        print_lines([f"Evicted in namespace {namespace}: {', '.join(others)}"])
    for policy in policies.preemption:
        if (limit := policy.limits.per_workload) is not None:
            used = sum(at > now - limit.window for at, _ in evictions)
            left = f"{max(0, limit.evictions - used)} more of {limit.evictions}"
            print_lines([f"Policy {policy.name} lets {left} go (limits.perWorkload)."])


def show_pod(
    pod: Pod, state: State, policy_set: PolicySet | None, *, record: EvictionRecord = NOTHING, unsaid: str = ""
) -> None:
    """Print all there is to say of a pod: of itself, and, unless `unsaid` tells why not, of what preemption would do.

    `policy_set` is None if the policies in force are not known.
    """
    now = time.time()
    policy = policy_set.policy_of(pod) if policy_set is not None else None
    why_not = ineligible_reason(pod, policy)
    acted = f"is not acted for: {why_not}"
    if policy is not None and not why_not:
        acted = f"is acted for, by policy {policy.name}"
    elif policy_set is None and is_marked(pod):
        acted = "is acted for, if its scheduler finds no room"
    print_lines([f"{key_of(pod)} {acted}.", *_of_pod(pod), *_of_plan(pod, state)])
    if policy_set is None or unsaid:
        print_lines([f"What preemption would do now is not said: {unsaid}."])
    elif pod.spec.node_name and not pod.metadata.deletion_timestamp:
        _show_possible_evictions(pod, state, policy_set, now)
    elif not pod.metadata.deletion_timestamp:
        rules = policy_set.rules[policy.name] if policy is not None else kubernetes_rules()
        if policy is None:
            decision = decide(state.snapshot, pod, rules, now)
        else:
            last, decided = state.index.last_resort(), partial(decide, state.snapshot, pod, rules, now)
            decision = decide_sparing(last, decided, np.zeros_like(last))
        if is_gang(state.snapshot, pod):
            whole = f"It belongs to {group_of(pod)} and is placed together with others of it"
            print_lines([f"{whole}: this is about it alone, and the last line about all of them."])
        show_decision("cluster", pod, state.snapshot, rules, decision)
        if policy is not None and not why_not:
            print_lines([f"Now: {_now(state, pod, policy, policy_set, record)}"])


def _of_pod(pod: Pod) -> list[str]:
    """What a pod and its scheduler say, and what is written on it of the last decision."""
    spec, annotations = pod.spec, pod.metadata.annotations or {}
    lines = [f"Its PriorityClass is {spec.priority_class_name or 'none'}, its priority {spec.priority or 0}."]
    if spec.node_name:
        written = [key for key in (CAN_BE_PREEMPTED, PROTECTION_DURATION) if key in annotations]
        lines += [f"It runs on {spec.node_name}.", *(f"Annotation {key}: {annotations[key]}." for key in written)]
    lines += [
        f"Its scheduler says: {condition.message or condition.reason or 'no reason'}"
        for condition in pod.status.conditions or ()
        if condition.type == "PodScheduled" and condition.status == "False"
    ]
    if (notice := notice_of(pod)) is not None:
        whom = f"pod {notice.preemptor}" if notice.preemptor else f"a pod of another namespace (uid {notice.uid})"
        lines.append(f"It is asked to leave by {notice.by}, for {whom} of priority {notice.priority}.")
        ready = is_ready(pod, notice.plan)
        lines.append("It says that it is ready to leave." if ready else f"With {READY}=true it is asked at once.")
    if (decision := decision_of(pod)) is not None:
        victims = ", ".join(victim.pod for victim in decision.victims) or "nobody"
        victims += f" and {decision.more_victims} more" if decision.more_victims else ""
        victims += with_all_of(victim.group or "" for victim in decision.victims)
        last = f"Last decision, at {decision.at}: node {decision.node}, to evict {victims}"
        lines.append(f"{last} (attempt {decision.attempt}).")
        lines += [f"Why that node: {decision.because}."] if decision.because else []
        if decision.left_out:
            why = "since the scheduler did not bind it there though there was room"
            lines.append(f"Left out then, {why}: {names(decision.left_out)}.")
    return lines


def _of_plan(pod: Pod, state: State) -> list[str]:
    """The plan that is written on the pod, and how far its victims are that were told."""
    nominated = not pod.spec.node_name and pod.status.nominated_node_name
    try:
        plan = plan_of(pod)
    except UnreadableError as error:
        return [f"Plan: {error}."]
    if plan is None:
        return [f"It is nominated to {nominated}, though not by giveway."] if nominated else []
    cleared = "" if nominated or pod.spec.node_name else ", though the scheduler cleared the nomination"
    lines = [f"A plan is under way: node {plan.node} is reserved until {plan.deadline}{cleared}."]
    lines += [f"Its victims are told {plan.notice:g} s before they are asked to leave."] if plan.notice else []
    for victim in plan.victims:
        known = state.pod_of(victim.key, victim.uid)
        if known is not None and (notice := notice_of(known)) is not None and notice.plan == plan.id:
            said = ", and is ready" if is_ready(known, plan.id) else ""
            lines.append(f"Victim {victim.key} is asked to leave by {notice.by}{said}.")
    return lines


def _now(state: State, pod: Pod, policy: PreemptionPolicy, policy_set: PolicySet, record: EvictionRecord) -> str:
    """What the reconciler would do now, in words: for the pod, or for the gang that it belongs to."""
    evaluator, rules = Evaluator(state, EvictionLog(), SteadyClock()), policy_set.rules[policy.name]
    recall_evictions(evaluator, policy_set, record)  # what of the rates is used up
    members, extenders = Members((pod,)), [ExtenderCache(extender, {}) for extender in policy.extenders]
    if is_gang(state.snapshot, pod):
        waiting = state.waiting_members(group_of(pod))
        ready = tuple(member for member in waiting if policy_set.policy_to_act_by(member) is policy)
        gated = tuple(member for member in waiting if member.spec.scheduling_gates)
        members = Members(ready, group_of(pod), gated)
    outcome = Evaluation(evaluator, members, policy, rules, 0, extenders=extenders).outcome()
    match outcome:
        case Fits(nodes):
            where = f"kube-scheduler can bind it, for example to {names(nodes)}"
            return f"nothing; {where} (if it does not, the reconciler decides without that node after a while)."
        case Unschedulable():
            return f"nothing would be done: {outcome.text}"
        case Question() as question:
            where = names(candidate.node for candidate in question.candidates)
            return f"evicting on {where} would make room; extender {url_of(question.extender)} says where it may."
    where = names(f"{key_of(member)} to {node}" for member, node in outcome.places or ((pod, outcome.node),))
    gone, more = names(map(key_of, outcome.victims)), with_all_of(outcome.groups.values())
    more += f" {outcome.room}" if outcome.room else ""
    evicted = f"{gone} evicted{more}" if gone else "nobody evicted: pods there are leaving anyway"
    return f"{where} would be nominated, and {evicted}."


def _show_possible_evictions(pod: Pod, state: State, policy_set: PolicySet, now: float) -> None:
    """Print one row for each policy and one for kube-scheduler, those who may evict the pod first."""
    rows = []
    evictions = possible_evictions(state, policy_set, key_of(pod), now)
    for eviction in sorted(evictions, key=lambda eviction: eviction.since is None):
        when = ["not as things are"]
        if eviction.since is not None:
            later = [rfc3339(eviction.since), f"(in {time_span(eviction.since - now)})"]
            when = ["now"] if eviction.since <= now else later
        who = f"giveway, policy {eviction.policy}" if eviction.policy else "kube-scheduler"
        classes = names(f"{name} ({value})" for name, value in eviction.classes) or "none"
        rows.append((who, classes, when, [f"{eviction.rule}: {eviction.text}", *eviction.conditions]))
    heads = ("who", "for pods of class", "from when", "by which rule")
    print_rows(people_console(), heads, rows, title="Who could evict it", most=None, ruled=True)
