"""Who takes devices on a candidate before the preemptor has all that it needs (docs/reconciler.md#devices).

A nomination reserves no devices, and they come free claim by claim. As long as something is missing the preemptor gets
nothing, and who wants less takes what is free: one that waits, of whatever priority and scheduler, or the one that a
controller puts in a victim's place at once (docs/kubernetes-behaviour.md K43).

Pods in front (docs/semantics.md D11) take theirs before it in any case.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property
from itertools import chain

import numpy as np

from webhook.kube.instants import epoch_or
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.preemption.decision import fits_on
from webhook.preemption.filters.devices import DeviceFilter, needs_devices
from webhook.preemption.filters.filtering import prefilter
from webhook.preemption.result import Decision
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.claim_index import devices_of
from webhook.preemption.snapshot.columns import Ints, Rows
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.pod_info import compile_pod
from webhook.preemption.snapshot.pod_view import priority_of
from webhook.preemption.victims.candidates import Candidate, Candidates
from webhook.reconciler.evaluate.pods_ahead import PodsAhead, waiting_text
from webhook.reconciler.evaluate.room import free_without, needed_by
from webhook.reconciler.preemptors import unschedulable_since

_DEVICE_GROUPS = 16
"""Groups of other waiting pods that ask for devices that are looked at."""
_CANDIDATES = 16
"""The best candidates, which are looked at one by one for devices."""
_OVERLOOKED = 60.0
"""If no scheduler has said anything of a pod for so many seconds, none is taken to look at it."""
_AT_ONCE = frozenset({"DaemonSet", "ReplicaSet", "ReplicationController", "StatefulSet"})
"""Kinds of controllers that replace a pod as soon as it leaves or is gone. A Job does so after ten seconds."""
ONE_BY_ONE = "wherever devices can be freed they come free one by one, and {} would take a part of them first"
"""Why nobody is evicted for devices: with who takes a part."""


class _Meter:
    """The devices of a node while pods take them that come before the preemptor; the uids of pods that are `gone`."""

    def __init__(self, node: int, gone: Collection[str], taken: Collection[DeviceId]) -> None:
        self.node, self.gone, self.taken = node, set(gone), set(taken)
        self._settled: set[str] = set()
        """Claims with a name that have their devices: all who name them share them."""

    def fails(self, needs: DeviceFilter, theirs: Collection[DeviceId] = ()) -> bool:
        """Whether a pod does not get what it needs beside what is taken, and `theirs`."""
        return needs.allocation(self.node, self.gone, self.taken.union(theirs), self._settled) is None

    def would_take(self, needs: DeviceFilter, gone: Collection[str]) -> list[DeviceId]:
        """What a pod gets once those are gone; nothing if it does not get all that it needs."""
        return needs.allocation(self.node, gone, self.taken, self._settled) or []

    def take(self, pod: Pod, needs: DeviceFilter) -> bool:
        """Let a pod have what it needs; whether it gets any."""
        devices = self.would_take(needs, self.gone)
        names = [entry.get("resourceClaimName") for entry in pod.spec.resource_claims or () if devices]
        self._settled |= {f"{pod.metadata.namespace}/{name}" for name in names if name}
        self.taken |= set(devices)
        return bool(devices)


class DevicesAhead:
    """Says who takes devices before a preemptor that asks for some; `now` is in seconds since the epoch.

    `ahead` says which pods in front come, and is told of the first one that keeps the preemptor from a candidate.
    """

    def __init__(self, ahead: PodsAhead, pod: Pod, *, now: float) -> None:
        self._snapshot, self._ahead, self._pod, self._now = ahead.state.snapshot, ahead, pod, now
        self._needed: dict[str, DeviceFilter | None] = {}
        """What pods need of devices, by their uid."""

    def choose(self, decision: Decision) -> tuple[Candidate | None, str]:
        """The best candidate of which nobody takes devices, and why not a better one; without one why there is none.

        No reason is given if there are no candidates, or a pod is `blocking`.
        """
        best, first = decision.selected, ""
        if best is None or not decision.asks_for_devices:
            return best, ""
        for candidate in decision.shortlist(_CANDIDATES):
            victims = self._snapshot.pod_rows([victim.key for victim in candidate.victims])
            if not (taker := self.taker(candidate.node, victims)):
                why = f"{first} would take a part of the devices of {best.node} before all are free" if first else ""
                return candidate, why
            first = first or taker
        return None, "" if self._ahead.blocking is not None else ONE_BY_ONE.format(first)

    def taker(self, host: str, victims: Rows, *, parts: bool = True) -> str:
        """Who takes devices on a node before the preemptor has those that these victims leave; empty for nobody.

        Pods in front, and those of lower priority for which others were evicted, get theirs once all victims are gone.
        With `parts` others count that take one before that.
        """
        snapshot, pods, own = self._snapshot, self._snapshot.pods, self._needs(self._pod)
        node, leaving = snapshot.nodes.find(host), pods.leaving()
        rows = np.union1d(victims, leaving[pods.node[leaving] == node]).astype(np.intp)
        if node is None or own is None or not len(rows):
            return ""
        gone = {pods.uids[row] for row in rows.tolist()}
        candidate = Candidates.on_nodes(snapshot, np.full(len(rows), node), rows, np.zeros(len(rows), np.bool_))
        # 1. What is held for pods of lower priority, and what those in front take that have room there.
        lower, free = (
            [pod for pod in self._ahead.held.get(host, ()) if key_of(pod) not in self._ahead.served],
            free_without(candidate),
        )
        held = {device for pod in lower for device in snapshot.device_claims.planned_for(pod.metadata.uid)}
        for order in (1, -1):
            meter = _Meter(node, gone, held)
            for pod in chain(lower[:1] if held else (), self._in_front(candidate, free, meter, order)):
                if meter.fails(own):
                    self._ahead.blocking = self._ahead.blocking or pod
                    return waiting_text(pod)
        # 2. What others take as long as one of those who hold devices has not left.
        holders = [uid for uid in gone if snapshot.device_claims.used_by(uid)] if parts else []
        incomplete = [gone - {last} for last in holders if len(holders) > 1]
        incomplete = [part for part in incomplete if own.allocation(node, part) is None]
        takings = self._parts_taken(candidate, free, meter, incomplete) if incomplete else ()
        return next((who for who, devices in takings if meter.fails(own, devices)), "")

    def _in_front(self, candidate: Candidates, free: Ints, meter: _Meter, order: int) -> Iterator[Pod]:
        """Let pods in front take devices; yields one of each group when it has. They take here what plans hold."""
        planned_for = self._snapshot.device_claims.planned_for
        for group, _, number, _ in self._ahead.come(candidate, free, order=order):
            alike = [pod for key, pod in group.pods.items() if key not in self._ahead.served]
            example = min(alike, key=lambda pod: bool(planned_for(pod.metadata.uid)))
            if not number.any() or (needs := self._needs(example)) is None:
                continue
            meter.gone |= {pod.metadata.uid for pod in alike}
            for _ in range(int(number[0])):
                if not meter.take(example, needs):
                    break
            if meter.taken:
                yield example

    def _parts_taken(
        self, candidate: Candidates, free: Ints, meter: _Meter, parts: Collection[Collection[str]]
    ) -> Iterator[tuple[str, Collection[DeviceId]]]:
        """Who takes which devices as long as only `parts` of the victims have left.

        A pod that waits and has no room beside the preemptor takes no part: the nomination keeps the room.
        """
        snapshot, pods, claims = self._snapshot, self._snapshot.pods, self._snapshot.device_claims
        if (need := needed_by(snapshot, compile_pod(self._pod))) is None:
            return
        beside = free[:, 0] - need
        for example, needs in self._device_users:
            other = needed_by(snapshot, compile_pod(example))
            there = snapshot.nodes.names[meter.node]
            if other is None or (other > beside).any() or not fits_on(snapshot, example, there, without=candidate.pods):
                continue
            yield from ((waiting_text(example), meter.would_take(needs, part)) for part in parts)
        for row in candidate.pods.tolist():
            owner, used = pods.owners.values[pods.owner[row]], pods.amounts[:, row]
            if owner and owner.kind in _AT_ONCE and (used <= beside[1 : 1 + len(used)]).all():
                keys = claims.used_by(pods.uids[row])
                devices = {device for key in keys for device in devices_of(claims.claims[key])}
                yield f"the pod that {owner.kind} {owner.name} puts in place of a victim", devices

    @cached_property
    def _device_users(self) -> list[tuple[Pod, DeviceFilter]]:
        """The waiting pods beyond those in front that ask for devices, and what each needs, the most important first.

        One of each group, for which no plan holds devices and at which its scheduler looks, as far as is known.
        """
        users, planned_for = list[tuple[Pod, DeviceFilter]](), self._snapshot.device_claims.planned_for
        for group in sorted(self._ahead.state.waiting.groups(), key=lambda group: -group.priority):
            others = (pod for key, pod in group.pods.items() if key not in self._ahead.served)
            example = next((pod for pod in others if not planned_for(pod.metadata.uid)), None)
            if example is None or len(users) == _DEVICE_GROUPS:
                continue
            same = example.spec.scheduler_name == self._pod.spec.scheduler_name
            in_front = same and group.priority > priority_of(self._pod)
            age = self._now - epoch_or(example.metadata.creation_timestamp, 0.0)
            is_looked_at = unschedulable_since(example) is not None or age < _OVERLOOKED
            if not in_front and is_looked_at and (needs := self._needs(example)) is not None:
                users.append((example, needs))
        return users

    def _needs(self, pod: Pod) -> DeviceFilter | None:
        """What the pod needs of devices; None if it needs none, or it cannot be told."""
        if (uid := pod.metadata.uid) not in self._needed:
            try:
                incoming = compile_pod(pod)
                asks = needs_devices(self._snapshot, incoming)
                self._needed[uid] = prefilter(self._snapshot, incoming).devices if asks else None
            except ClusterError:
                self._needed[uid] = None
        return self._needed[uid]
