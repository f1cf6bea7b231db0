"""`giveway explain pod NAMESPACE/NAME`: why a live pod is pending, or who could evict it; reads only."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from webhook.cli.decide_explain import explain_decision, listed
from webhook.cli.output import literal
from webhook.cli.running import runs
from webhook.kube.client import ApiError, Client, ConfigError
from webhook.kube.instants import rfc3339
from webhook.kube.objects import Pod, key_of
from webhook.policy.files.loading import PolicyError, load_or_raise
from webhook.policy.model import PreemptionPolicy
from webhook.preemption.decision import decide
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.victims.rules import kubernetes_rules
from webhook.reconciler.clock import SteadyClock
from webhook.reconciler.evaluate.evaluator import Asks, Evaluator, Evicts, Fits, Outcome, Unschedulable, Waits
from webhook.reconciler.evaluate.eviction_limiter import EvictionLimiter, has_rates
from webhook.reconciler.evaluate.extender_client import ExtenderCache, url_of
from webhook.reconciler.evaluate.victim_exclusions import decide_with_exclusions, immovable
from webhook.reconciler.possible_evictions import PossibleEviction, possible_evictions
from webhook.reconciler.preemptors import PolicySet, ineligible_reason
from webhook.reconciler.state.annotations import UnreadableError, decision_of, plan_of
from webhook.reconciler.state.state import State
from webhook.simulation.judgeable import check_judgeable
from webhook.simulation.simulated_reconciler import offline_state
from webhook.simulation.snapshot.format import SnapshotError
from webhook.simulation.snapshot.reading import read_cluster

__all__ = ["command", "show"]


@click.group()
def command() -> None:
    """Say why a live pod is pending and what preemption would do, or who could evict a running one."""


@command.command("pod")
@click.argument("name", metavar="NAMESPACE/NAME")
@click.option("--kubeconfig", envvar="GIVEWAY_KUBECONFIG", show_envvar=True, help="How to reach the cluster.")
@click.option(
    "--policies",
    envvar="GIVEWAY_POLICIES",
    show_envvar=True,
    required=True,
    type=click.Path(path_type=Path),
    help="The directory of the policy files the reconciler runs with.",
)
@click.option(
    "--snapshot",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Explain a pod of a snapshot, or of lists of `kubectl get -o json`, instead of a live one.",
)
@runs(ApiError, ClusterError, ConfigError, OSError, PolicyError, SnapshotError)
async def explain_pod(name: str, kubeconfig: str | None, policies: Path, files: tuple[Path, ...]) -> None:
    """Explain one pod.

    Of a pending pod: whether it is acted for, what fails on every node, who is protected by what, what would happen.
    Of a running one: who could evict it, for pods of which classes, by which rule, and from when.

    Lists and watches the cluster as the reconciler does; writes nothing.
    """
    key = name if "/" in name else f"default/{name}"
    policy_set = PolicySet(load_or_raise(policies))
    annotations = policy_set.annotations() | kubernetes_rules().annotations
    if files:
        objects = read_cluster(files)
        check_judgeable(policy_set.policies, objects)
        state, clock = offline_state(objects, annotations), SteadyClock(lambda: objects.taken_at, lambda: 0.0)
        pod, where = state.pods.get(key), f" in {', '.join(map(str, files))}"
    else:
        async with await Client.connect(kubeconfig) as client:
            state, clock = State(client, annotations), SteadyClock()
            reading = asyncio.create_task(state.run())
            synced = asyncio.create_task(state.wait_for_sync())
            await asyncio.wait((reading, synced), return_when=asyncio.FIRST_COMPLETED, timeout=60)
            pod, where = state.pods.get(key), ""
            if not state.synced:
                raise ApiError(0, "Timeout", "the cluster could not be listed within 60 s; see the log lines above")
            for task in (reading, synced):
                task.cancel()
            await asyncio.gather(reading, synced, return_exceptions=True)
    if pod is None:
        raise click.ClickException(f"there is no pod {key}{where}")
    show(pod, state, policy_set, clock)


def show(pod: Pod, state: State, policy_set: PolicySet, clock: SteadyClock | None = None) -> None:
    """Print all there is to say of a pod in a cluster that has been listed; `clock` tells when that was."""
    console = Console(highlight=False)
    policy = policy_set.policy_of(pod)
    why_not = ineligible_reason(pod, policy)
    key = literal(key_of(pod))
    if why_not:
        console.print(f"[yellow]{key} is not acted for: {literal(why_not)}.[/yellow]")
    else:
        assert policy is not None
        console.print(f"[green]{key} is acted for, by policy {policy.name}.[/green]")
    for line in _history(pod):
        console.print(literal(line))
    clock = clock or SteadyClock()
    if pod.spec.node_name and not pod.metadata.deletion_timestamp:
        found = possible_evictions(state, policy_set, key_of(pod), clock.wall())
        _show_possible_evictions(key_of(pod), pod.spec.node_name, found, clock.wall())
    if pod.spec.node_name or pod.metadata.deletion_timestamp:
        return
    if policy is None:
        rules = kubernetes_rules()
        decision = decide(state.snapshot, pod, rules, clock.wall())
    else:
        rules = policy_set.rules[policy.name]
        decision = decide_with_exclusions(state, pod, rules, clock.wall(), immovable(state, ()))
    console.print()
    explain_decision("cluster", pod, state.snapshot, rules, decision)
    if policy is not None and not why_not:
        console.print(f"Now: {literal(_now(state, pod, policy, policy_set, clock))}")


def _history(pod: Pod) -> list[str]:
    """What is written on the pod of plans past and present."""
    lines = []
    decision = decision_of(pod)
    if decision is not None:
        victims = ", ".join(victim.pod for victim in decision.victims) or "nobody"
        lines.append(
            f"Last decision, at {decision.at}: node {decision.node}, to evict {victims} (attempt {decision.attempt})."
        )
        if decision.because:
            lines.append(f"Why that node: {decision.because}.")
        if decision.left_out:
            names = listed(list(decision.left_out))
            lines.append(f"Left out then, since the scheduler did not bind it there though there was room: {names}.")
    try:
        plan = plan_of(pod)
    except UnreadableError as error:
        return [*lines, f"Plan: {error}."]
    if plan is not None and not pod.status.nominated_node_name and not pod.spec.node_name:
        lines.append(
            f"A plan for node {plan.node} is under way until {plan.deadline}. The scheduler cleared the nomination, "
            "so nothing reserves the room; a profile without PostFilter plugins does that at every failed attempt."
        )
    elif plan is not None:
        lines.append(f"A plan is under way: node {plan.node} is reserved until {plan.deadline}.")
    elif pod.status.nominated_node_name and not pod.spec.node_name:
        lines.append(f"It is nominated to {pod.status.nominated_node_name}, though not by giveway.")
    return lines


def _now(state: State, pod: Pod, policy: PreemptionPolicy, policy_set: PolicySet, clock: Any) -> str:
    """What the reconciler would do for the pod now, in words."""
    outcome: Outcome = Evaluator(state, EvictionLimiter(), clock).evaluate(
        pod,
        policy,
        policy_set.rules[policy.name],
        0,
        extenders=[ExtenderCache(extender, {}) for extender in policy.extenders],
    )
    match outcome:
        case Fits(nodes):
            unless = "if it does not, the reconciler decides for it without that node after a while"
            return f"nothing; kube-scheduler can bind it to {nodes[0]} ({unless})."
        case Waits(node, leaving):
            pods = "1 pod there is" if leaving == 1 else f"{leaving} pods there are"
            return f"{node} would be reserved, and nobody evicted: {pods} leaving anyway."
        case Evicts(node, victims):
            names = listed([key_of(victim) for victim in victims])
            unless = ", unless one of the policy's rates is used up" if has_rates(policy.limits) else ""
            return f"{node} would be reserved, and {names} evicted{unless}."
        case Asks(question):
            where = listed([candidate.node for candidate in question.candidates])
            return f"evicting on {where} would make room; extender {url_of(question.extender)} says where it may."
        case Unschedulable(reason):
            return f"nothing would be done: {reason.rstrip('.')}."


def _show_possible_evictions(pod: str, where: str, found: list[PossibleEviction], now: float) -> None:
    """Print one row for each policy and one for kube-scheduler, those who may evict the pod first."""
    console = Console(highlight=False)
    first = min((one.since for one in found if one.policy and one.since is not None), default=None)
    by_giveway = "may not evict it as things are"
    if first is not None:
        by_giveway = "may evict it now" if first <= now else f"may evict it from {rfc3339(first)} on"
    by_scheduler = "may at any time" if any(not one.policy and one.since is not None for one in found) else "may not"
    said = f"giveway {by_giveway}; kube-scheduler {by_scheduler}."
    console.print(f"\n[bold cyan]{literal(pod)}[/bold cyan] runs on {literal(where)}. {said}")
    table = Table(title="Who could evict it", title_justify="left", show_lines=True)
    table.add_column("who", ratio=2, overflow="fold")
    table.add_column("for pods of class", ratio=3, overflow="fold")
    table.add_column("from when", no_wrap=True)
    table.add_column("by which rule", ratio=4, overflow="fold")
    for one in sorted(found, key=lambda one: one.since is None):
        if one.since is None:
            when = "[dim]not as things are[/dim]"
        elif one.since <= now:
            when = "[yellow]now[/yellow]"
        else:
            when = f"[yellow]{rfc3339(one.since)}\n(in {_duration(one.since - now)})[/yellow]"
        table.add_row(
            f"giveway, policy {literal(one.policy)}" if one.policy else "kube-scheduler",
            literal(listed([f"{name} ({value})" for name, value in one.classes]) or "none"),
            when,
            "\n".join((f"[magenta]{literal(one.rule)}[/magenta]: {literal(one.text)}", *map(literal, one.conditions))),
        )
    console.print(table)


def _duration(seconds: float) -> str:
    """A length of time in its two largest units."""
    left, parts = round(seconds), []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"
