"""`giveway decide`: preemption decisions for clusters given as JSON lines, or for pods of a cluster file."""

from __future__ import annotations

import sys
import time
import timeit
from collections.abc import Collection
from contextlib import suppress
from fileinput import FileInput
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from webhook.cli.options import policies_option
from webhook.kube.instants import InstantError, epoch
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.policy.files.loading import load_or_raise
from webhook.policy.model.policies import Policies
from webhook.policy.shapes.findings import PolicyError
from webhook.preemption.decision import decide
from webhook.preemption.result import Decision
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.kinds import NODES, PODS, SNAPSHOT_KINDS
from webhook.preemption.snapshot.pod_view import KEPT_ANNOTATIONS
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.candidates import Candidate
from webhook.preemption.victims.rules import Rules, kubernetes_rules
from webhook.reconciler.preemptors import PolicySet

_BROKEN = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_RAWS = list[msgspec.Raw] | None
Line: Any = msgspec.defstruct(
    "Line",
    [
        ("preemptor", msgspec.Raw),
        ("name", Any, None),
        ("now", float | str | None, None),
        *((kind.field, _RAWS) if kind in (NODES, PODS) else (kind.field, _RAWS, None) for kind in SNAPSHOT_KINDS),
    ],
    kw_only=True,
)
"""A line as it is read first: a list for each kind of a snapshot. Its objects are decoded one by one, so that a large
cluster stays small."""


class Cluster(NamedTuple):
    """A pod to decide for, and its cluster; `now` is in seconds since the epoch, `taken` how long the snapshot took."""

    name: Any
    preemptor: Pod
    now: float
    snapshot: Snapshot
    taken: float


@click.command("decide")
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=str))
@click.option("--rules", type=click.Choice(["kubernetes"]), help="Decide by plain Kubernetes rules (the default).")
@policies_option("Decide by the PreemptionPolicy in DIR that manages the preemptor's class.")
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
    files: tuple[str, ...], rules: str | None, policies: Path | None, pods: tuple[str, ...], **how: Any
) -> None:
    """Decide preemption for the clusters in FILES (default: standard input), one JSON object a line.

    A file can also be what `giveway snapshot` wrote, and with --pod what `kubectl get -o json` prints. A line that is
    not a valid cluster is answered with its error; the exit code is 1 then.
    """
    if rules is not None and policies is not None:
        raise click.UsageError("--rules and --policies exclude each other")
    policy_set = None if policies is None else _policy_set(policies)
    if pods or any(_is_cluster_file(name) for name in files if name != "-"):
        _answer_pods(files, pods, policy_set, how)
        return
    annotations = KEPT_ANNOTATIONS | (policy_set.annotations() if policy_set is not None else frozenset())
    failed = False
    with FileInput(files or ("-",), mode="rb") as lines:
        for number, text in enumerate(filter(bytes.strip, lines), start=1):
            try:
                _answer(read_line(text, annotations), policy_set, **how)
            except ClusterError as error:
                failed = True
                click.echo(msgspec.json.encode({"name": _name_of(text, number), "error": str(error)}))
    sys.exit(1 if failed else 0)


def _policy_set(directory: Path) -> PolicySet:
    """The policies of a directory, which has a PreemptionPolicy."""
    try:
        policy_set = PolicySet(load_or_raise(directory))
    except (PolicyError, ClusterError) as error:
        raise click.ClickException(str(error)) from error
    if not policy_set.rules:
        raise click.ClickException(f"{directory} holds no PreemptionPolicy; --rules kubernetes needs none")
    return policy_set


def _is_cluster_file(name: str) -> bool:
    from webhook.simulation.cluster_file.format import is_cluster_file  # noqa: PLC0415

    return is_cluster_file(Path(name))


def _answer_pods(files: tuple[str, ...], keys: tuple[str, ...], policy_set: PolicySet | None, how: Any) -> None:
    """Decide for pods of a cluster file."""
    from webhook.simulation.cluster_file.format import ClusterFileError, read_cluster  # noqa: PLC0415
    from webhook.simulation.judgeable import annotations_read, check_judgeable  # noqa: PLC0415
    from webhook.simulation.simulated_reconciler import offline_state  # noqa: PLC0415

    policies = policy_set.policies if policy_set is not None else Policies()
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
        try:
            _answer(Cluster(key_of(pod), pod, objects.taken_at, snapshot, taken), policy_set, **how)
        except ClusterError as error:
            click.echo(msgspec.json.encode({"name": key_of(pod), "error": str(error)}))


def read_line(text: bytes, annotations: Collection[str]) -> Cluster:
    """Read a line. Raises ClusterError, with the place, for what cannot be read and for two objects of one name."""
    started = time.perf_counter()
    try:
        line = msgspec.json.decode(text, type=Line)
    except _BROKEN as error:
        raise ClusterError(f"not a cluster: {error}") from error
    preemptor, now = _object(line.preemptor, Pod, "preemptor"), line.now
    if now is None:
        now = time.time()
    elif isinstance(now, str):
        try:
            now = epoch(now)
        except InstantError as error:
            raise ClusterError(f"now: {error}") from error
    snapshot = Snapshot(annotations)
    for kind in SNAPSHOT_KINDS:
        seen: dict[str, int] = {}
        for number, raw in enumerate(getattr(line, kind.field) or ()):
            place = f"{kind.field}[{number}]"
            item = _object(raw, kind.type_, place, namespaced=kind.resource.namespaced)
            if (first := seen.setdefault(key_of(item), number)) != number:
                raise ClusterError(f"{place}: {kind.field}[{first}] has the same name, {key_of(item)}")
            try:
                snapshot.put(kind, item)
            except ClusterError as error:
                raise ClusterError(f"{place}: {error}") from error
    return Cluster(line.name, preemptor, now, snapshot, time.perf_counter() - started)


def _object(raw: msgspec.Raw, type_: type[Any], place: str, *, namespaced: bool = True) -> Any:
    """Decode one object; what has no name is an error, and a namespace that is left out is `default`."""
    try:
        decoded = msgspec.json.decode(raw, type=type_)
    except _BROKEN as error:
        raise ClusterError(f"{place}: {error}") from error
    if not decoded.metadata.name:
        raise ClusterError(f"{place}: metadata.name is missing")
    if namespaced and not decoded.metadata.namespace:
        decoded.metadata.namespace = "default"
    return decoded


def _name_of(text: bytes, number: int) -> Any:
    """The name a line gives itself, even if the rest is wrong; else its number."""
    name = None
    with suppress(*_BROKEN):
        name = msgspec.json.decode(text, type=dict[str, Any]).get("name")
    return f"line {number}" if name is None else name


def _answer(cluster: Cluster, policy_set: PolicySet | None, *, timing: int | None, explain: bool) -> None:
    """Answer for one pod, by the only policy or by the one that manages its class. Raises ClusterError."""
    name, pod, now, snapshot, taken = cluster
    rules: Rules | None = kubernetes_rules()
    if policy_set is not None:
        only, *others = policy_set.rules.values()
        managing = policy_set.policy_of(pod)
        rules = (policy_set.rules[managing.name] if managing else None) if others else only
    snapshot.under_policy = rules is not None and rules.policy is not None
    decision = decide(snapshot, pod, rules or kubernetes_rules(), now)
    if rules is not None and explain:
        from webhook.cli.decision_shown import show_decision  # noqa: PLC0415  # rich loads only if it prints

        show_decision(str(name or "cluster"), pod, snapshot, rules, decision)
        return
    answer = {
        "name": name,
        "eligible": decision.eligible,
        "reason": decision.reason,
        "fits": decision.fits,
        "unresolvable": decision.unresolvable,
        "candidates": [_candidate_as_json(decision, candidate) for candidate in decision.candidates],
        "selected": decision.selected.node if decision.selected else None,
        "nodeReasons": decision.node_reasons,
    }
    if rules is None:
        # A pod that none of several policies manages: where it fits and what fails, but no preemption
        reason = f"not eligible: no PreemptionPolicy manages pods of PriorityClass {pod.spec.priority_class_name!r}."
        answer |= {"eligible": False, "reason": reason, "candidates": [], "selected": None}
    elif timing is not None:
        best = min(timeit.repeat(lambda: decide(snapshot, pod, rules, now), number=1, repeat=timing))
        answer["timingMs"] = {"snapshot": round(taken * 1e3, 3), "decision": round(best * 1e3, 3)}
    click.echo(msgspec.json.encode(answer))


def _candidate_as_json(decision: Decision, candidate: Candidate) -> dict[str, Any]:
    """A candidate; where its victims are that go with a group, or that stand in the way on other nodes, and why."""
    victims = candidate.victims
    row: dict[str, Any] = {"node": candidate.node, "victims": [victim.key for victim in victims]}
    row["pdbViolations"] = candidate.pdb_violations
    for victim in victims:
        if victim.group:
            row.setdefault("groups", {}).setdefault(victim.group, {})[victim.key] = victim.node
    elsewhere = {victim.key: victim.node for victim in victims if victim.node != candidate.node}
    room = decision.made_room(candidate) if elsewhere else ""
    return row | ({"elsewhere": elsewhere, "room": room} if room else {})
