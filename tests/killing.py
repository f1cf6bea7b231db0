"""A reconciler that is killed at a step of a plan, right before or after a write: how crash recovery is tested."""

from __future__ import annotations

import os
import signal
from typing import Any

import msgspec

from webhook.policy.model.values import PLAN

KILL_AT = "GIVEWAY_TEST_KILL_AT"
"""In the environment: the step."""
STEPS = ("decided", "nominated", "displaced", "first-victim", "all-but-last", "evicted", "bound")
"""The steps between which a process can end, in their order."""
NOTICE_STEPS = ("first-told", "told", "withdrawing", "withdrawn")
"""Those of a notice: the first two after the nomination, the others once no plan stands behind it."""


class Killer:
    """Ends this process at one step, as `kill -9` does. A plan is known by the victims that it was written with."""

    def __init__(self, step: str) -> None:
        self._step = step
        self._done: list[tuple[str, str]] = []
        """What was written for which victim, by uid."""
        self._plans: list[frozenset[str]] = []

    def reach(self, step: str) -> None:
        """The process has come to this step."""
        if step == self._step:
            os.kill(os.getpid(), signal.SIGKILL)

    def nominated(self, victims: Any) -> None:
        """A plan with these victims is written."""
        self._plans.append(frozenset(victim.uid for victim in victims))
        self.reach("nominated")

    def written(self, what: str, uid: str, first: str, *last: str) -> None:
        """This was done to one victim, perhaps the `first` of its plan, or one of the `last` ones."""
        self._done.append((what, uid))
        (plan,) = [victims for victims in self._plans if uid in victims][-1:] or [frozenset({uid})]
        count = len({other for kind, other in self._done if kind == what and other in plan})
        if count == 1:
            self.reach(first)
        for left, step in enumerate(reversed(last)):
            if count == len(plan) - left:
                self.reach(step)


def kill_at(step: str) -> None:
    """Let this process be killed at that step."""
    from webhook.reconciler.evict.writer import Writer  # noqa: PLC0415 - imported in the fork server
    from webhook.reconciler.state.annotations import PlanRecord  # noqa: PLC0415

    killer = Killer(step)
    clear, patch, evict = Writer.clear, Writer.patch_status, Writer.evict

    async def clearing(self: Any, pod: Any, *given: Any) -> Any:
        if pod.spec.node_name:
            killer.reach("bound")
        return await clear(self, pod, *given)

    async def patching(self: Any, what: str, pod: Any, body: Any, *given: Any, **more: Any) -> Any:
        if before := {"nominate": "decided", "withdraw": "withdrawing"}.get(what):
            killer.reach(before)
        patched = await patch(self, what, pod, body, *given, **more)
        if what == "nominate":
            record = msgspec.json.decode(body["metadata"]["annotations"][PLAN], type=PlanRecord)
            killer.nominated(record.victims)
        elif what == "withdraw":
            killer.reach("withdrawn")
        elif what == "notice":
            killer.written(what, pod.metadata.uid, "first-told", "told")
        return patched

    async def evicting(self: Any, pod: Any, *given: Any, dry_run: bool = False, **more: Any) -> Any:
        if not dry_run:
            killer.reach("displaced")
        result = await evict(self, pod, *given, dry_run=dry_run, **more)
        if not dry_run:
            killer.written("remove", pod.metadata.uid, "first-victim", "all-but-last", "evicted")
        return result

    changed = {"clear": clearing, "patch_status": patching, "evict": evicting}
    for name, method in changed.items():
        setattr(Writer, name, method)
