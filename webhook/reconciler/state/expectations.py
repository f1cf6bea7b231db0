"""What was done to pods and is not seen yet: victims leave, preemptors are nominated, plans are taken off. Pure."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace

import msgspec

from webhook.kube.instants import rfc3339
from webhook.kube.objects.pod import Pod
from webhook.reconciler.state.annotations import carries


@dataclass(frozen=True, slots=True)
class _Leaving:
    uid: str
    plans: frozenset[str]
    """The plans that expect it; a pod whose room several count on may be asked for any of them."""
    end: str
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Cleared:
    """Plans that are taken off a pod, and the nomination that is left: `pending` ones, and others that are `done`.

    `version` is the pod's resourceVersion since the last of these was taken off.
    """

    nominated: str
    pending: frozenset[str] = frozenset()
    done: frozenset[str] = frozenset()
    version: str = ""

    def hides(self, pod: Pod) -> bool:
        """Whether this version of the pod is from before that, so that its nomination does not count."""
        seen, plans = pod.metadata.resource_version, self.pending
        if seen.isdecimal() and self.version.isdecimal():
            if int(seen) < int(self.version):
                return True
        else:
            plans |= self.done
        return any(carries(pod, plan) for plan in plans)

    def shown(self, pod: Pod) -> bool:
        """Whether this is the pod as it is since then, and no other plan is to be taken off."""
        return bool(self.version) and not self.pending and not self.hides(pod)


@dataclass(frozen=True, slots=True)
class _Nominated:
    uid: str
    plan: str
    node: str


class Expectations:
    """Victims expected to be terminating and preemptors expected to be nominated, by `namespace/name`.

    An expectation ends when the watch shows what is expected, when the pod is gone, or when its plan is given up.
    """

    def __init__(self) -> None:
        self.cleared: dict[str, Cleared] = {}
        """Pod to the plans that were taken off it, until the watch shows that."""
        self._leaving: dict[str, _Leaving] = {}
        self._nominated: dict[str, _Nominated] = {}

    def __len__(self) -> int:
        return len(self._leaving) + len(self._nominated)

    def expect_leaving(self, key: str, uid: str, plan: str, end: float) -> None:
        """The pod was, or is about to be, asked to leave until `end`, in seconds since the epoch."""
        known = self._leaving.get(key)
        others = known.plans if known is not None and known.uid == uid else frozenset()
        self._leaving[key] = _Leaving(uid, others | {plan}, rfc3339(end))

    def leaves_for(self, key: str) -> frozenset[str]:
        """The plans, by id, that count on the pod `namespace/name` to leave."""
        known = self._leaving.get(key)
        return known.plans if known is not None else frozenset()

    def expect_gone(self, plan: str) -> list[str]:
        """The pods that this plan has asked to leave count as gone now; their keys."""
        keys = [key for key, it in self._leaving.items() if plan in it.plans]
        self._leaving |= {key: replace(self._leaving[key], gone=True) for key in keys}
        return keys

    def expect_nominated(self, key: str, uid: str, plan: str, node: str) -> None:
        """The pod was, or is about to be, nominated to the node."""
        self._nominated[key] = _Nominated(uid, plan, node)

    def expect_cleared(self, key: str, plan: str, node: str, pod: Pod, *, done: bool) -> None:
        """The plan for that node is to be taken off the pod; once that is `done`, the pod is as given.

        The watch may not have shown yet that the plan before was taken off.
        """
        known = self.cleared.get(key, Cleared(pod.status.nominated_node_name))
        left = pod.status.nominated_node_name if done else known.nominated
        pending = known.pending - {plan} if done else known.pending | {plan}
        taken_off, version = (
            (known.done | {plan}, pod.metadata.resource_version) if done else (known.done, known.version)
        )
        self.cleared[key] = Cleared("" if left == node else left, pending, taken_off, version)

    def give_up(self, plan: str, *, but: Container[str] = (), nominated: bool = False) -> list[str]:
        """Expect nothing of this plan any more except of the pods of these uids; the keys that are to be looked at.

        With `nominated` its preemptor is still expected to be.
        """
        leaving = [key for key, it in self._leaving.items() if plan in it.plans and it.uid not in but]
        held = [] if nominated else [key for key, it in self._nominated.items() if it.plan == plan]
        for key in leaving:
            others = self._leaving[key].plans - {plan}
            if others:
                self._leaving[key] = replace(self._leaving[key], plans=others)
            else:
                del self._leaving[key]
        for key in held:
            del self._nominated[key]
        return leaving + held

    def overlay(self, key: str, pod: Pod) -> Pod | None:
        """The pod with what is expected of it; None if it counts as gone.

        An expectation ends here once the watch shows it.
        """
        nominated, leaving = self._nominated.get(key), self._leaving.get(key)
        if (cleared := self.cleared.get(key)) is not None:
            if cleared.shown(pod):
                del self.cleared[key]
            elif cleared.hides(pod):
                status = msgspec.structs.replace(pod.status, nominated_node_name=cleared.nominated)
                pod = msgspec.structs.replace(pod, status=status)
        if nominated is not None:
            # An earlier plan's nomination to the same node, on its way to be cleared, is not the one that is expected.
            seen = pod.status.nominated_node_name == nominated.node and carries(pod, nominated.plan)
            if seen or nominated.uid != pod.metadata.uid or pod.spec.node_name:
                del self._nominated[key]
            else:
                status = msgspec.structs.replace(pod.status, nominated_node_name=nominated.node)
                pod = msgspec.structs.replace(pod, status=status)
        if leaving is None:
            return pod
        if leaving.uid != pod.metadata.uid or pod.metadata.deletion_timestamp:
            del self._leaving[key]
            return pod
        meta = msgspec.structs.replace(pod.metadata, deletion_timestamp=leaving.end)
        return None if leaving.gone else msgspec.structs.replace(pod, metadata=meta)

    def forget(self, key: str) -> None:
        """The pod is gone."""
        self.cleared.pop(key, None)
        self._leaving.pop(key, None)
        self._nominated.pop(key, None)
