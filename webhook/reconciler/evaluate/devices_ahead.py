"""Who takes devices on a candidate before the preemptor has all that it needs (docs/reconciler.md#devices).

A nomination reserves no devices, and they come free claim by claim. As long as something is missing the preemptor gets
nothing, and who wants less takes what is free: one that waits, of whatever priority and scheduler, or the one that a
controller puts in a victim's place at once (docs/kubernetes-behaviour.md K43).

Pods in front (docs/semantics.md D11) take theirs before it in any case.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from webhook.kube.instants import epoch_or
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
from webhook.reconciler.state.state import State

_Taking = tuple[str, Pod | None, Collection[DeviceId], Collection[str]]
"""Who takes devices, the pod if it comes before the preemptor, which they are, and the named claims that have them."""
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


class DevicesAhead:
    """Says who takes devices before a preemptor that asks for some.

    `ahead` says which pods in front come, and is told of the first one that keeps the preemptor from a candidate.
    `held` are preemptors of lower priority, by node, for which pods were evicted there. Pods `together` with the
    preemptor take nothing from one another. `now` is in seconds since the epoch.
    """

    def __init__(
        self,
        state: State,
        pod: Pod,
        ahead: PodsAhead,
        held: Mapping[str, Sequence[Pod]],
        *,
        now: float,
        together: Collection[Pod] = (),
    ) -> None:
        self._state, self._pod, self._ahead, self._held, self._now = state, pod, ahead, held, now
        self._served = {member.metadata.uid for member in (pod, *together)}
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
            victims = self._state.snapshot.pod_rows([victim.key for victim in candidate.victims])
            if not (taker := self.taker(candidate.node, victims)):
                why = f"{first} would take a part of the devices of {best.node} before all are free" if first else ""
                return candidate, why
            first = first or taker
        return None, "" if self._ahead.blocking is not None else ONE_BY_ONE.format(first)

    @cached_property
    def _device_users(self) -> list[tuple[Pod, DeviceFilter]]:
        """The waiting pods beyond those in front that ask for devices, and what each needs, the most important first.

        One of each group, for which no plan holds devices.
        """
        users: list[tuple[Pod, DeviceFilter]] = []
        planned_for = self._state.snapshot.device_claims.planned_for
        for group in sorted(self._state.waiting.groups(), key=lambda group: -group.priority):
            others = (pod for pod in group.pods.values() if pod.metadata.uid not in self._served)
            example = next((pod for pod in others if not planned_for(pod.metadata.uid)), None)
            if example is not None and not self._is_in_front(example) and (needs := self._needs(example)) is not None:
                users.append((example, needs))
            if len(users) == _DEVICE_GROUPS:
                break
        return users

    def _is_in_front(self, pod: Pod) -> bool:
        """Whether the preemptor's scheduler tries this pod first."""
        same = pod.spec.scheduler_name == self._pod.spec.scheduler_name
        return same and priority_of(pod) > priority_of(self._pod)

    def _needs(self, pod: Pod) -> DeviceFilter | None:
        """What the pod needs of devices; None if it needs none, or it cannot be told."""
        if (uid := pod.metadata.uid) not in self._needed:
            try:
                incoming, snapshot = compile_pod(pod), self._state.snapshot
                asks = needs_devices(snapshot, incoming)
                self._needed[uid] = prefilter(snapshot, incoming).devices if asks else None
            except ClusterError:
                self._needed[uid] = None
        return self._needed[uid]

    def taker(self, host: str, victims: Rows, *, parts: bool = True) -> str:
        """Who takes devices on a node before the preemptor has those that these victims leave; empty for nobody.

        Pods in front, and those of lower priority for which others were evicted, get theirs once all victims are gone.
        With `parts` others count that take one before that.
        """
        snapshot, pods, own = self._state.snapshot, self._state.snapshot.pods, self._needs(self._pod)
        if (node := snapshot.nodes.find(host)) is None or own is None:
            return ""
        leaving = pods.leaving()
        rows = np.union1d(victims, leaving[pods.node[leaving] == node]).astype(np.intp)
        if not len(rows):
            return ""
        gone = {pods.uids[row] for row in rows.tolist()}
        holders = [uid for uid in gone if snapshot.device_claims.used_by(uid)]
        incomplete = [gone - {last} for last in holders] if parts and len(holders) > 1 else []
        incomplete = [part for part in incomplete if own.allocation(node, part) is None]
        candidate = Candidates.on_nodes(snapshot, np.full(len(rows), node), rows, np.zeros(len(rows), np.bool_))
        for who, pod, devices, settled in self._takings(candidate, gone, incomplete):
            if own.allocation(node, gone, devices, settled) is None:
                self._ahead.blocking = self._ahead.blocking or pod
                return who
        return ""

    def _takings(self, candidate: Candidates, gone: set[str], parts: Sequence[Collection[str]]) -> Iterator[_Taking]:
        """Who may take which devices before the preemptor once the candidate's victims, or `parts` of them, have left.

        Those are `gone` by uid, and then pods in front: what plans hold for them, they take here. A pod that waits and
        has no room beside the preemptor takes no part: the nomination keeps the room.
        """
        snapshot, need = self._state.snapshot, needed_by(self._state.snapshot, compile_pod(self._pod))
        claims, node = snapshot.device_claims, int(candidate.nodes[0])
        if need is None:
            return
        free = free_without(snapshot, candidate)
        beside = free[:, 0] - need
        # 1. What is held for pods of lower priority.
        lower = [
            pod for pod in self._held.get(snapshot.nodes.names[node], ()) if pod.metadata.uid != self._pod.metadata.uid
        ]
        held = {device for pod in lower for device in claims.planned_for(pod.metadata.uid)}
        if held:
            yield waiting_text(lower[0]), lower[0], held, ()
        # 2. What those in front take that have room there, whichever of them the scheduler tries first.
        coming, nobody = list(self._ahead.coming(candidate, {})), candidate.pods[:0]
        for order in (coming, coming[::-1]):
            room, taken = free.copy(), set(held)
            settled: set[str] = set()
            """Claims with a name that are allocated for a pod in front: all who name them share them."""
            for ahead in order:
                alike = [pod for pod in ahead.group.pods.values() if pod.metadata.uid not in self._served]
                example = min(alike, key=lambda pod: bool(claims.planned_for(pod.metadata.uid)), default=None)
                if example is None:
                    continue
                uids = {pod.metadata.uid for pod in alike}
                needs = self._needs(example)
                if needs is not None and needs.allocation(node, gone | uids, taken, settled) is None:
                    continue  # it does not come: that is found sooner than whether it fits
                count = self._ahead.count(ahead, candidate, nobody, room)
                room -= ahead.need[:, None] * count
                if needs is None or not count.any():
                    continue
                names = [entry.get("resourceClaimName") for entry in example.spec.resource_claims or ()]
                gone |= uids
                for _ in range(min(len(alike), int(count[0]))):
                    if not (devices := needs.allocation(node, gone, taken, settled)):
                        break
                    taken |= set(devices)
                    settled |= {f"{example.metadata.namespace}/{name}" for name in names if name}
                if taken:
                    yield waiting_text(example), example, taken, settled
        # 3. What others take of a part.
        if parts:
            yield from self._parts_taken(candidate, beside, parts, taken, settled)

    def _parts_taken(
        self,
        candidate: Candidates,
        beside: Ints,
        parts: Sequence[Collection[str]],
        taken: set[DeviceId],
        settled: set[str],
    ) -> Iterator[_Taking]:
        """Who may take devices as long as only `parts` of the victims have left, in the room `beside` the preemptor.

        Pods in front have `taken` theirs, and the claims with a name that are `settled`.
        """
        snapshot, pods, node = self._state.snapshot, self._state.snapshot.pods, int(candidate.nodes[0])
        host = snapshot.nodes.names[node]
        for example, needs in self._device_users:
            other = needed_by(snapshot, compile_pod(example))
            if other is None or (other > beside).any() or not self._is_looked_at(example):
                continue
            if fits_on(snapshot, example, host, without=candidate.pods):
                for part in parts:
                    if theirs := needs.allocation(node, part, taken, settled):
                        yield waiting_text(example), None, taken.union(theirs), settled
        claims = snapshot.device_claims
        for row in candidate.pods.tolist():
            owner, used = pods.owners.values[pods.owner[row]], pods.amounts[:, row]
            keys = claims.used_by(pods.uids[row])
            if keys and owner and owner.kind in _AT_ONCE and (used <= beside[1 : 1 + len(used)]).all():
                devices = {device for key in keys for device in devices_of(claims.claims[key])}
                yield f"the pod that {owner.kind} {owner.name} puts in place of a victim", None, devices, ()

    def _is_looked_at(self, pod: Pod) -> bool:
        """Whether the pod's scheduler looks at it, as far as is known."""
        age = self._now - epoch_or(pod.metadata.creation_timestamp, 0.0)
        return unschedulable_since(pod) is not None or age < _OVERLOOKED
