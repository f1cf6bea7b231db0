"""`giveway decide`: preemption decisions for clusters given as JSON lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from webhook.cli.decide_input import Cluster, decode, name_of, take_snapshot
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.preemption.decision import decide
from webhook.preemption.result import Decision
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.pod_view import KEPT_ANNOTATIONS
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.candidates import Candidate
from webhook.preemption.victims.rules import Rules, compile_rules, kubernetes_rules

Choose = Callable[[Pod], Rules | None]


@click.command("decide")
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=str))
@click.option("--rules", type=click.Choice(["kubernetes"]), help="Decide by plain Kubernetes rules (the default).")
@click.option(
    "--policies",
    type=click.Path(exists=True, path_type=Path),
    metavar="DIR",
    help="Decide by the PreemptionPolicy in DIR that manages the preemptor's class.",
)
@click.option("--timing", type=click.IntRange(min=1), metavar="N", help="Add timingMs, the decision's the best of N.")
@click.option("--explain", is_flag=True, help="Say it for people: every node, every reason, and why the winner won.")
@click.option(
    "--pod",
    "pods",
    multiple=True,
    metavar="NAMESPACE/NAME",
    help="For this pod of a snapshot, or of lists of kubectl. By default: for every pod of a snapshot that waits.",
)
def command(
    files: tuple[str, ...],
    rules: str | None,
    policies: Path | None,
    timing: int | None,
    pods: tuple[str, ...],
    *,
    explain: bool,
) -> None:
    """Decide preemption for the clusters in FILES (default: standard input), one JSON object a line.

    A file can also be what `giveway snapshot` wrote, and with --pod what `kubectl get -o json` prints. A line that is
    not a valid cluster is answered with its error; the exit code is 1 then.
    """
    if rules is not None and policies is not None:
        raise click.UsageError("--rules and --policies exclude each other")
    choose = _from_policies(policies) if policies is not None else (lambda _pod: kubernetes_rules())
    named = [Path(name) for name in files if name != "-"]
    if named and not pods:
        from webhook.simulation.cluster_file.reading import is_cluster_file  # noqa: PLC0415
    if pods or any(is_cluster_file(path) for path in named):
        _answer_pods(files, pods, policies, choose, timing, explain=explain)
        return
    failed, number = False, 0
    for name in files or ("-",):
        with click.open_file(name, "rb") as stream:
            for text in filter(bytes.strip, stream):
                number += 1
                try:
                    cluster = decode(text)
                    chosen = choose(cluster.preemptor)
                    started = time.perf_counter()
                    snapshot = take_snapshot(
                        cluster, KEPT_ANNOTATIONS | (chosen.annotations if chosen else frozenset())
                    )
                    _decide(cluster, snapshot, chosen, timing, time.perf_counter() - started, explain=explain)
                except ClusterError as error:
                    failed = True
                    _print({"name": name_of(text, number), "error": str(error)})
    sys.exit(1 if failed else 0)


def _answer_pods(
    files: tuple[str, ...],
    keys: tuple[str, ...],
    directory: Path | None,
    choose: Choose,
    timing: int | None,
    *,
    explain: bool,
) -> None:
    """Decide for pods of a cluster file."""
    from webhook.policy.files.loading import load_or_raise  # noqa: PLC0415
    from webhook.policy.model.policies import Policies  # noqa: PLC0415
    from webhook.simulation.cluster_file.format import ClusterFileError  # noqa: PLC0415
    from webhook.simulation.cluster_file.reading import read_cluster  # noqa: PLC0415
    from webhook.simulation.judgeable import annotations_read, check_judgeable  # noqa: PLC0415
    from webhook.simulation.simulated_reconciler import offline_state  # noqa: PLC0415

    policies = load_or_raise(directory) if directory is not None else Policies()
    try:
        objects = read_cluster([Path(name) for name in files])
        check_judgeable(policies, objects)
    except (ClusterError, ClusterFileError) as error:
        raise click.ClickException(str(error)) from error
    if unknown := [key for key in keys if key not in objects.of("Pod")]:
        raise click.ClickException(f"there is no pod {unknown[0]} in {', '.join(files)}")
    started = time.perf_counter()
    snapshot = offline_state(objects, annotations_read([policies])).snapshot
    taken = time.perf_counter() - started
    for pod in [objects.of("Pod")[key] for key in keys] or objects.pending():
        cluster = Cluster(key_of(pod), None, pod, objects.taken_at)
        try:
            _decide(cluster, snapshot, choose(pod), timing, taken, explain=explain)
        except ClusterError as error:
            _print({"name": cluster.name, "error": str(error)})


def _decide(
    cluster: Cluster, snapshot: Snapshot, rules: Rules | None, timing: int | None, taken: float, *, explain: bool
) -> None:
    """Answer for one pod; `taken` is how many seconds the snapshot took."""
    snapshot.under_policy = rules is not None and rules.policy is not None
    if rules is None:
        # A pod that none of several policies manages: where it fits and what fails, but no preemption
        unmanaged = decide(snapshot, cluster.preemptor, kubernetes_rules(), cluster.now)
        class_name = cluster.preemptor.spec.priority_class_name
        reason = f"not eligible: no PreemptionPolicy manages pods of PriorityClass {class_name!r}."
        _print(
            _as_json(cluster.name, unmanaged)
            | {"eligible": False, "reason": reason, "candidates": [], "selected": None}
        )
        return
    decision = decide(snapshot, cluster.preemptor, rules, cluster.now)
    if explain:
        from webhook.cli.decide_explain import explain_decision  # noqa: PLC0415  # rich loads only if it prints

        explain_decision(str(cluster.name or "cluster"), cluster.preemptor, snapshot, rules, decision)
        return
    answer = _as_json(cluster.name, decision)
    if timing is not None:
        times = []
        for _ in range(timing):
            started = time.perf_counter()
            decide(snapshot, cluster.preemptor, rules, cluster.now)
            times.append(time.perf_counter() - started)
        answer["timingMs"] = {"snapshot": round(taken * 1e3, 3), "decision": round(min(times) * 1e3, 3)}
    _print(answer)


def _as_json(name: Any, decision: Decision) -> dict[str, Any]:
    return {
        "name": name,
        "eligible": decision.eligible,
        "reason": decision.reason,
        "fits": decision.fits,
        "unresolvable": decision.unresolvable,
        "candidates": [_candidate_as_json(decision, candidate) for candidate in decision.candidates],
        "selected": decision.selected.node if decision.selected else None,
        "nodeReasons": decision.node_reasons,
    }


def _candidate_as_json(decision: Decision, candidate: Candidate) -> dict[str, Any]:
    """A candidate; where its victims are that go with a group, or that stand in the way on other nodes, and why."""
    elsewhere = {victim.key: victim.node for victim in candidate.victims if victim.node != candidate.node}
    room = decision.made_room(candidate) if elsewhere else ""
    groups: dict[str, dict[str, str]] = {}
    for victim in candidate.victims:
        if victim.group:
            groups.setdefault(victim.group, {})[victim.key] = victim.node
    return (
        {
            "node": candidate.node,
            "victims": [victim.key for victim in candidate.victims],
            "pdbViolations": candidate.pdb_violations,
        }
        | ({"groups": groups} if groups else {})
        | ({"elsewhere": elsewhere, "room": room} if room else {})
    )


def _from_policies(directory: Path) -> Choose:
    """Which policy decides for a pod: the only one, or the one that manages the pod's class."""
    from webhook.policy.evaluation.engine import Engine  # noqa: PLC0415  # CEL loads only if policies are read
    from webhook.policy.files.loading import load_or_raise  # noqa: PLC0415
    from webhook.policy.shapes.findings import PolicyError  # noqa: PLC0415

    try:
        policies = load_or_raise(directory)
        compiled = {policy.name: compile_rules(policy) for policy in policies.preemption}
        engine = Engine(policies)
    except (PolicyError, ClusterError) as error:
        raise click.ClickException(str(error)) from error
    if not compiled:
        raise click.ClickException(f"{directory} holds no PreemptionPolicy; --rules kubernetes needs none")
    if len(compiled) == 1:
        only = next(iter(compiled.values()))
        return lambda _pod: only

    def choose(pod: Pod) -> Rules | None:
        managed = engine.managed(pod.spec.priority_class_name)
        return compiled[managed.policy.name] if managed else None

    return choose


def _print(answer: dict[str, Any]) -> None:
    click.echo(msgspec.json.encode(answer).decode())
