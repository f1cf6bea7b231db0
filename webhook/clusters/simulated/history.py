"""What happened in a simulated cluster: the story of every pod that something happened to, and of every plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from webhook.clusters.simulated.clock import VirtualClock
from webhook.kube.events import Occurrence
from webhook.kube.instants import epoch_or
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import workload_of
from webhook.preemption.victims.costs import checkpoint


class Eviction(msgspec.Struct, rename="camel", kw_only=True):
    """Why a pod was asked to leave; `at` is in seconds, `by` giveway, kube-scheduler, or what else was behind it.

    `ran` is how long it had run, and `lost` how much of that was not saved at a checkpoint, in seconds.
    """

    at: float
    pod: str
    owner: str
    priority: int
    node: str
    by: str
    preemptor: str = ""
    preemptor_owner: str = ""
    policy: str = ""
    rule: str = ""
    because: str = ""
    ran: float
    lost: float

    @property
    def is_preemption(self) -> bool:
        """Whether it went for another pod."""
        return self.by in {"giveway", "kube-scheduler"}


@dataclass(slots=True)
class PodStory:
    """One pod, on its node once it has one.

    Times are seconds since the start, negative if it was waiting already, None if it never was.
    """

    pod: Pod
    waits_since: float | None = None
    placed: float | None = None
    eviction: Eviction | None = None

    @property
    def waited(self) -> float | None:
        """Seconds until it was placed."""
        return None if self.placed is None or self.waits_since is None else self.placed - self.waits_since


@dataclass(slots=True)
class SimulationHistory:
    """Filled while the simulation runs."""

    clock: VirtualClock
    pods: dict[str, PodStory] = field(default_factory=dict)
    """By uid: the pods that something happened to, in the order in which it did."""
    decisions: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    """When the reconciler made plans, and the lines of its log about them."""
    endings: Counter[str] = field(default_factory=Counter)
    """How plans ended."""
    refused: dict[str, str] = field(default_factory=dict)
    """Owner, or pod, whose pods admission refuses, and the rule with its message."""
    budget_refusals: int = 0
    notes: list[tuple[float, str]] = field(default_factory=list)
    """What was changed from outside, and when."""
    checkpoints: tuple[str, ...] = ()
    """Annotations that say when a pod's work was saved."""
    _grounds: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Victim's key to the line of the decision that named it."""

    def story(self, pod: Pod) -> PodStory:
        """The story of a pod, begun if there is none."""
        return self.pods.setdefault(pod.metadata.uid, PodStory(pod))

    def placed(self, pod: Pod) -> None:
        """A pod was bound."""
        story = self.story(pod)
        story.pod, story.placed = pod, self.clock.monotonic()

    def evicted(self, pod: Pod, by: str) -> None:
        """A pod was asked to leave."""
        now = self.clock.wall()
        started = epoch_or(pod.status.start_time, now)
        saved = max(started, checkpoint(pod.metadata.annotations or {}, self.checkpoints))
        key = key_of(pod)
        self.story(pod).eviction = eviction = Eviction(
            at=self.clock.monotonic(),
            pod=key,
            owner=owner_of(pod),
            priority=pod.spec.priority or 0,
            node=pod.spec.node_name,
            by=by,
            ran=max(0.0, now - started),
            lost=max(0.0, now - saved),
        )
        line = self._grounds.get(key) if by == "giveway" else None
        if line is not None:
            victim = next(entry for entry in line["victims"] if entry["pod"] == key)
            eviction.preemptor, eviction.policy = line["preemptor"], line["policy"]
            eviction.rule, eviction.because = victim["rule"], victim["because"]

    def decided(self, line: dict[str, Any]) -> None:
        """The reconciler has made a plan; of the decision comes the line of its log."""
        self._grounds |= {victim["pod"]: line for victim in line.get("victims", ())}
        self.decisions.append((self.clock.monotonic(), line))

    def event(self, occurrence: Occurrence) -> None:
        """Take one of kube-scheduler's Events, which may tell whom a victim went for."""
        story, behind = self.pods.get(occurrence.regarding["uid"]), occurrence.related
        if occurrence.reason == "Preempted" and behind and story is not None and story.eviction is not None:
            story.eviction.preemptor = f"{behind['namespace']}/{behind['name']}"


def owner_of(pod: Pod) -> str:
    """The workload that a pod counts for, `Kind/namespace/name`; itself if it has none."""
    return workload_of(pod) or f"Pod/{key_of(pod)}"
