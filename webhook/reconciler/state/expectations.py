"""What was done but not seen yet, laid over what the watch shows.

Between an act and the watch event that tells of it, the next decision must already count the victims as leaving and
the preemptor as nominated: else a pod is chosen twice, and two preemptors are promised one hole. The overlay never
outlives what it expects: it ends when the watch shows it, when the pod is gone, or when the plan is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, replace

import msgspec

from webhook.kube.instants import rfc3339
from webhook.kube.objects import Pod, PodDisruptionBudget
from webhook.reconciler.state.annotations import carries

__all__ = ["Disruptions", "Expectations"]


@dataclass(frozen=True, slots=True)
class _Leaving:
    uid: str
    plan: str
    end: str
    gone: bool = False


@dataclass(frozen=True, slots=True)
class _Nominated:
    uid: str
    plan: str
    node: str


class Expectations:
    """Victims expected to be terminating and preemptors expected to be nominated, by `namespace/name`."""

    def __init__(self) -> None:
        self._leaving: dict[str, _Leaving] = {}
        self._nominated: dict[str, _Nominated] = {}

    def __len__(self) -> int:
        return len(self._leaving) + len(self._nominated)

    def expect_leaving(self, key: str, uid: str, plan: str, end: float) -> None:
        """The pod was, or is about to be, asked to leave until `end`, in seconds since the epoch."""
        self._leaving[key] = _Leaving(uid, plan, rfc3339(end))

    def expect_gone(self, plan: str) -> list[str]:
        """The pods that this plan has asked to leave count as gone now; their keys."""
        keys = [key for key, it in self._leaving.items() if it.plan == plan]
        self._leaving |= {key: replace(self._leaving[key], gone=True) for key in keys}
        return keys

    def expect_nominated(self, key: str, uid: str, plan: str, node: str) -> None:
        """The pod was, or is about to be, nominated to the node."""
        self._nominated[key] = _Nominated(uid, plan, node)

    def is_leaving(self, key: str, uid: str) -> bool:
        """Whether this pod is expected to leave and has not been seen leaving."""
        expected = self._leaving.get(key)
        return expected is not None and expected.uid == uid

    def is_gone(self, key: str, uid: str) -> bool:
        """Whether this pod, which the watch shows, counts as gone."""
        expected = self._leaving.get(key)
        return expected is not None and expected.uid == uid and expected.gone

    def give_up(self, plan: str, *, but: Container[str] = (), nominated: bool = False) -> list[str]:
        """Expect nothing of this plan any more except of the pods of these uids; the keys that are to be looked at.

        With `nominated` its preemptor is still expected to be.
        """
        leaving = [key for key, it in self._leaving.items() if it.plan == plan and it.uid not in but]
        held = [] if nominated else [key for key, it in self._nominated.items() if it.plan == plan]
        for key in leaving:
            del self._leaving[key]
        for key in held:
            del self._nominated[key]
        return leaving + held

    def overlay(self, key: str, pod: Pod) -> Pod:
        """The pod as it will be seen; what the watch shows already is no longer expected."""
        return self._overlay_nominated(key, self._overlay_leaving(key, pod))

    def forget(self, key: str) -> None:
        """The pod is gone."""
        self._leaving.pop(key, None)
        self._nominated.pop(key, None)

    def _overlay_leaving(self, key: str, pod: Pod) -> Pod:
        expected = self._leaving.get(key)
        if expected is None:
            return pod
        if expected.uid != pod.metadata.uid or pod.metadata.deletion_timestamp:
            del self._leaving[key]
            return pod
        meta = msgspec.structs.replace(pod.metadata, deletion_timestamp=expected.end)
        return msgspec.structs.replace(pod, metadata=meta)

    def _overlay_nominated(self, key: str, pod: Pod) -> Pod:
        expected = self._nominated.get(key)
        if expected is None:
            return pod
        # An earlier plan's nomination to the same node, on its way to be cleared, is not the one that is expected.
        gone = expected.uid != pod.metadata.uid or pod.spec.node_name
        if gone or (pod.status.nominated_node_name == expected.node and carries(pod, expected.plan)):
            del self._nominated[key]
            return pod
        status = msgspec.structs.replace(pod.status, nominated_node_name=expected.node)
        return msgspec.structs.replace(pod, status=status)


class Disruptions:
    """Evictions that a budget's status does not count yet, by budget (`namespace/name`) and victim's name.

    The Eviction API writes the victim into `status.disruptedPods` and takes it off `disruptionsAllowed` in one go;
    until the watch shows that, later decisions must not spend the same disruption again. A plain delete writes nothing:
    there the disruption controller counts the victim as no longer healthy once it is terminating
    (`countHealthyPods`), and `currentHealthy` falls.
    """

    def __init__(self) -> None:
        self._expected: dict[str, dict[str, str]] = {}

    def __len__(self) -> int:
        return len(self._expected)

    def expect(self, budget: str, victim: str, plan: str) -> None:
        """This plan will use one disruption of the budget for the pod of that name."""
        self._expected.setdefault(budget, {})[victim] = plan

    def overlay(self, key: str, budget: PodDisruptionBudget) -> PodDisruptionBudget:
        """The budget with what is expected already taken off; what its status shows is no longer expected."""
        expected = self._expected.get(key)
        if not expected:
            return budget
        for name in [name for name in budget.status.disrupted_pods or () if name in expected]:
            self._drop(key, name)
        allowed = max(0, budget.status.disruptions_allowed - len(expected))
        return msgspec.structs.replace(
            budget, status=msgspec.structs.replace(budget.status, disruptions_allowed=allowed)
        )

    def fell(self, key: str, by: int, terminating: Callable[[str], bool]) -> None:
        """The budget's `currentHealthy` fell by so many: that many victims seen `terminating` are counted by now."""
        counted = [name for name in self._expected.get(key, ()) if terminating(name)]
        for name in counted[: max(0, by)]:
            self._drop(key, name)

    def gone(self, namespace: str, victim: str) -> list[str]:
        """The pod is gone: by now its budgets have counted it; the budgets to be looked at again."""
        prefix = f"{namespace}/"
        found = [key for key, names in self._expected.items() if key.startswith(prefix) and victim in names]
        for key in found:
            self._drop(key, victim)
        return found

    def give_up(self, plan: str, *, but: Container[str] = ()) -> list[str]:
        """Expect nothing of this plan any more except of pods of these names; the budgets to be looked at again."""
        mine = [
            (key, name)
            for key, names in self._expected.items()
            for name, by in names.items()
            if by == plan and name not in but
        ]
        for key, name in mine:
            self._drop(key, name)
        return list(dict(mine))

    def _drop(self, budget: str, victim: str) -> None:
        names = self._expected[budget]
        names.pop(victim, None)
        if not names:
            del self._expected[budget]
