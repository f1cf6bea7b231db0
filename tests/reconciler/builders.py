"""Small builders of the objects the reconciler decides on, and a world that no API server is needed for."""

import asyncio
from itertools import chain
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from tests.preemption import building
from webhook.kube.instants import rfc3339
from webhook.kube.objects.cluster_scoped import Node, PriorityClass
from webhook.kube.objects.meta import ObjectMeta, key_of
from webhook.kube.objects.pod import Pod, PodDisruptionBudget
from webhook.kube.objects.scheduling import PodGroup
from webhook.kube.pods import is_terminal
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import PreemptionPolicy, Preemptors
from webhook.policy.model.values import CAN_BE_PREEMPTED, DECISION, MANAGED, MARK, PLAN
from webhook.policy.shapes.yaml_nodes import SourcePosition
from webhook.preemption.snapshot.columns import ObjectTable
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.kinds import POD_GROUPS, PODS, PRIORITY_CLASSES
from webhook.preemption.snapshot.pod_groups import COSCHEDULING, GroupKey, group_of
from webhook.reconciler.clock import Now
from webhook.reconciler.evaluate.evaluation import Evaluation
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.evaluate.outcomes import Evicts, Members
from webhook.reconciler.evictions.log import EvictionLog, PodEviction
from webhook.reconciler.plans.actions import Do, Step, Verb
from webhook.reconciler.plans.look import Look, PlanContext
from webhook.reconciler.plans.plan import Member, Plan, PlanIndex
from webhook.reconciler.preemptors import PolicySet
from webhook.reconciler.reconciler import Reconciler
from webhook.reconciler.reporting import ReconcilerMetrics, Reporter
from webhook.reconciler.state import annotations
from webhook.reconciler.state.annotations import DecisionRecord, PlanRecord, PlanVictim, digest_of, encode, plan_of
from webhook.reconciler.state.pending import CountedOn
from webhook.reconciler.state.state import State

START = 1_800_000_000.0
"""When the tests' clock begins, in seconds since the epoch."""


class FakeClock:
    """A clock that stands until it is told to go on; `jump` moves the wall clock alone."""

    def __init__(self) -> None:
        self.now = 0.0
        self.jump = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return START + self.now + self.jump

    def stopwatch(self) -> float:
        return self.now  # work takes no time, however busy the machine is


def pod(
    name: str,
    cpu: str = "2",
    *,
    priority: int = 80,
    node: str = "",
    class_name: str = "low",
    spec: dict[str, Any] | None = None,
    owner: tuple[str, str] | None = None,
    deleted: str | None = None,
    created: str | None = None,
    **more: Any,
) -> Pod:
    """A pod that may be a victim; on a node it has been running for an hour. More are fields of metadata and status."""
    body = building.pod(name, on=node, priority=priority, cpu=cpu, **{"priorityClassName": class_name, **(spec or {})})
    meta, status = body["metadata"], body["status"]
    meta |= {"labels": {}, "annotations": {CAN_BE_PREEMPTED: "true"}, "deletionTimestamp": deleted}
    meta |= {"creationTimestamp": created, "ownerReferences": building.owned_by(*owner) if owner else []}
    for field, (part, key) in _FIELDS.items():
        if field in more:
            (meta if part == "metadata" else status)[key] = more.pop(field)
    assert not more, more
    return msgspec.convert(body, Pod)


def four_victims(*leaving: str) -> list[Pod]:
    """Four pods of 2 CPU on node n1, which they fill, the least important last; these are gone in 20 seconds."""
    gone = {name: rfc3339(START + 20) for name in leaving}
    starts = {f"v{number}": rfc3339(START - 4000 + number) for number in range(4)}
    return [pod(name, node="n1", start=start, deleted=gone.get(name)) for name, start in starts.items()]


_FIELDS = {
    **{field: ("metadata", field) for field in ("namespace", "uid", "labels", "annotations")},
    **{field: ("status", field) for field in ("phase", "conditions")},
    "start": ("status", "startTime"),
    "nominated": ("status", "nominatedNodeName"),
}


def only_on(host: str, **more: Any) -> dict[str, Any]:
    """The spec of a pod that is made for one node, as those of a DaemonSet; more are fields of the term."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [host]}], **more}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


def names(outcome: Evicts) -> list[str]:
    """The names of the victims, in their order."""
    return [victim.metadata.name for victim in outcome.victims]


def preemptor(name: str = "p", cpu: str = "3", *, priority: int = 100, **more: Any) -> Pod:
    """A marked pod that the scheduler found no node for."""
    since = rfc3339(START - 10)
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": since}
    labels = {MARK: MANAGED, **more.pop("labels", {})}
    more.setdefault("class_name", "high")
    more["spec"] = {"preemptionPolicy": "Never", **more.get("spec", {})}
    return pod(name, cpu, priority=priority, labels=labels, conditions=[unschedulable], annotations={}, **more)


def planned(made: Pod, record: PlanRecord, decision: DecisionRecord | None = None) -> Pod:
    """The pod with a plan that an earlier leader wrote on it."""
    told = encode(decision) if decision else ""
    made.metadata.annotations = {PLAN: encode(record)} | ({DECISION: told} if told else {})
    return made


def logged(log: EvictionLog, *pods: Pod) -> None:
    """Let the log of the leader before tell that it wrote the plans on these pods."""
    for one in pods:
        if plan_of(one) is not None:
            log.earlier_plans[one.metadata.uid] = frozenset({digest_of(one)})


def evicted(log: EvictionLog, workload: str, at: float, by: str = "", node: str = "n1") -> None:
    """Let the log tell of an eviction at this time."""
    log.note(PodEviction(at, workload, node, "default", preemptor=by))


def decided(*rows: annotations.DecidedVictim, plan: str = "x", age: float = 10.0) -> tuple[PlanRecord, DecisionRecord]:
    """A plan for n1 of so many seconds ago for these victims, and its decision."""
    victims = tuple(PlanVictim(*row.pod.split("/"), f"uid-{row.pod.partition('/')[2]}") for row in rows)
    at = rfc3339(START - age)
    decision = DecisionRecord(plan=plan, at=at, node="n1", policy="test", attempt=1, victims=rows)
    return PlanRecord(id=plan, node="n1", victims=victims, begun=at), decision


def node(name: str, cpu: str = "8", *, pods: str = "110", **labels: str) -> Node:
    """A node with these labels."""
    return msgspec.convert(building.node(name, cpu, pods=pods, labels=labels), Node)


def budget(name: str, allowed: int, labels: dict[str, str], **status: Any) -> PodDisruptionBudget:
    """A disruption budget with so many disruptions left."""
    return msgspec.convert(building.budget(name, labels, allowed, **status), PodDisruptionBudget)


def policy(**fields: Any) -> PreemptionPolicy:
    """A policy that manages class `high`."""
    fields.setdefault("preemptors", Preemptors(priority_classes=("high",)))
    return PreemptionPolicy(name="test", source=SourcePosition(), **fields)


class _Whichever(int):
    """A value that is equal to every priority."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int)

    __hash__ = int.__hash__


class ClassesOfPods(ObjectTable[PriorityClass]):
    """The classes that were shown; one of another name speaks for all pods that have it, whatever their priority."""

    def get(self, name: str, default: Any = None) -> Any:
        known = super().get(name, default)
        return known or PriorityClass(metadata=ObjectMeta(name=name), value=_Whichever())


def plan_for(
    record: PlanRecord,
    key: str = "default/p",
    *,
    uid: str = "uid-p",
    started: float = 0.0,
    nominated: bool = False,
    **more: Any,
) -> Plan:
    """A plan of five minutes for one preemptor of priority 100."""
    devices = [DeviceId(*device) for device in record.devices]
    member = Member(key, uid, 100, record.node, devices, nominated=nominated)
    return Plan(record, {key: member}, started, **{"deadline": 300.0, **more})


def went(plan: Plan, *victims: str) -> None:
    """These victims, by name, have been asked to leave for the plan."""
    for uid in (f"uid-{name}" for name in victims):
        plan.gone.add(uid)
        plan.needed.discard(uid)
        plan.asking.pop(uid, None)


def are_nominated(*plans: Plan) -> None:
    """The nominations of all their members are written."""
    for member in chain.from_iterable(plan.unplaced for plan in plans):
        member.nominated = True


def under_way(*plans: Plan) -> PlanIndex:
    """These plans, and no others."""
    index = PlanIndex()
    for plan in plans:
        index.put(plan)
    return index


def asks(step: Step) -> dict[Verb, list[str]]:
    """The names of the pods about which a step makes requests, by what it asks; none if it makes none."""
    return {step.verb: [about.metadata.name for about in step.pods]} if isinstance(step, Do) else {}


def otherwise(state: State) -> list[str]:
    """The pods and budgets that count otherwise than the watch shows them."""
    there = {key: one for key, one in state.pods.items().items() if not is_terminal(one)}
    pods = [key for key, one in there.items() if state.pending.expected(PODS, key, one) is not one]
    return pods + [key for key in state.budgets.items() if state.pending.spending(key)]


class Setting:
    """A cluster in memory, and decisions on it."""

    def __init__(self, *nodes: Node, under: PreemptionPolicy | None = None) -> None:
        self.policy = under or policy()
        self.policy_set = PolicySet(Policies(preemption=(self.policy,)))
        self.state = State(None, self.policy_set.annotations())  # type: ignore[arg-type]  # nothing is asked of a server
        self.clock = FakeClock()
        self.evaluator = Evaluator(self.state, EvictionLog(), self.clock)
        self.state.snapshot.classes.__class__ = ClassesOfPods
        self.state.snapshot.put(
            PRIORITY_CLASSES, msgspec.convert({"metadata": {"name": "low"}, "value": 80}, PriorityClass)
        )
        for one in nodes:
            self.state.nodes.take(one.metadata.name, one)

    @property
    def at(self) -> Now:
        """The time."""
        return Now(self.clock.monotonic(), self.clock.wall())

    def look(self, plan: Plan) -> Step:
        """What is to be done next for the only plan."""
        return Look(plan, PlanContext(self.evaluator, self.policy_set, under_way(plan)), self.at).step()

    def add(self, *pods: Pod) -> None:
        """Let the watch show these pods."""
        for one in pods:
            self.state.pods.take(f"{one.metadata.namespace}/{one.metadata.name}", one)

    def remove(self, key: str) -> None:
        """Let the watch show that a pod is gone."""
        self.state.pods.take(key, None)

    def budget(self, one: PodDisruptionBudget) -> None:
        """Let the watch show a budget."""
        self.state.budgets.take(f"default/{one.metadata.name}", one)

    def group(self, name: str = "gang", minimum: int = 2, kind: str = COSCHEDULING) -> None:
        """Let the watch show a group that needs so many pods."""
        body = building.pod_group(name, minimum)
        body["spec"] |= {"minMember": minimum} if kind == COSCHEDULING else {}
        self.state.snapshot.put(POD_GROUPS[kind], msgspec.convert(body, PodGroup))

    def evaluate(self, *ready: Pod, attempts: int = 0, of: GroupKey | None = None, **more: Any) -> Any:
        """What would be done for a preemptor now, or for members of a group together."""
        self.add(*ready)
        rules = self.policy_set.rules[self.policy.name]
        return Evaluation(self.evaluator, Members(ready, of), self.policy, rules, attempts, **more).outcome()

    def evaluate_gang(self, *ready: Pod, **more: Any) -> Any:
        """What would be done for the members of a gang now."""
        return self.evaluate(*ready, of=group_of(ready[0]), **more)

    def expect(self, one: Pod, outcome: Any, plan: str = "plan") -> None:
        """Begin to carry out an outcome, as far as later decisions are concerned."""
        self.count_on(plan, *getattr(outcome, "victims", ()))
        self.state.pending.count_on(plan, {key_of(one): CountedOn(one.metadata.uid, node=outcome.node)})

    def leaving(self) -> dict[str, float]:
        """The pods that count as leaving, and when they will be gone, in seconds since the epoch."""
        pods = self.state.snapshot.pods
        return {pods.key(row): float(pods.gone_at[row]) for row in pods.leaving().tolist()}

    def count_on(self, plan: str, *leaving: Pod) -> None:
        """A plan counts on these pods to leave by now."""
        end = rfc3339(self.clock.wall())
        rows = {key_of(pod): CountedOn(pod.metadata.uid, end) for pod in leaving}
        self.state.pending.count_on(plan, rows)


def full(*leaving: str) -> Setting:
    """One node of 8 CPU, which four victims of 2 CPU fill; these are gone in 20 seconds."""
    setting = Setting(node("n1"))
    setting.add(*four_victims(*leaving))
    return setting


class Desk:
    """A reconciler at work on a cluster in memory, with a clock that is turned; without a lease, it cannot write."""

    def __init__(self, setting: Setting, *, dry_run: bool = False) -> None:
        self.told: list[dict[str, Any]] = []
        self.times: list[float] = []
        """When each line was told, in seconds of the clock."""
        self.setting, self.clock = setting, setting.clock
        self.reconciler = Reconciler(
            None,  # type: ignore[arg-type]  # nothing is asked of a server
            setting.state,
            setting.policy_set,
            Reporter(ReconcilerMetrics(CollectorRegistry()), self._tell, None),
            setting.clock,
            fence=lambda: 0.0,
            dry_run=dry_run,
        )
        self.reconciler.leading = True

    def lines(self, message: str) -> list[dict[str, Any]]:
        """What was said under that message."""
        return [line for line in self.told if line["message"] == message]

    def lead(self) -> None:
        """Look at all pods, as a new leader does that knows the plans on them, and take a turn."""
        logged(self.reconciler.evaluator.log, *self.reconciler.state.pods.items().values())
        self.reconciler.look_at_all()
        self.reconciler.turn()

    async def work(self, until: float) -> None:
        """Work as the reconciler's loop does, until then."""
        while True:
            self.reconciler.turn()
            await asyncio.sleep(0)
            due = self.reconciler.queue.next_due()
            step = self.clock.now + 5.0
            if min(step, until) <= self.clock.now:
                return
            self.clock.now = min(step, until, max(due, self.clock.now))

    def _tell(self, message: str, **line: Any) -> None:
        self.told.append({"message": message, **line})
        self.times.append(self.clock.now)
