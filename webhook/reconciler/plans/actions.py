"""What can be done next for a plan. `plans.next_action` says what is, `evict.executor` does it."""

from __future__ import annotations

from typing import NamedTuple

from webhook.kube.objects.pod import Pod
from webhook.reconciler.plans.endings import Ending
from webhook.reconciler.state.annotations import PlanVictim


class Nominate(NamedTuple):
    """Write nomination and plan; meanwhile find out for these victims what `Try` does."""

    victims: tuple[PlanVictim, ...]


class Promise(NamedTuple):
    """The policy tells victims earlier than when the plan was written: write that before they are told."""

    seconds: float


class Displace(NamedTuple):
    """Clear the nominations of these pods, if there are any."""

    pods: tuple[Pod, ...]


class Spare(NamedTuple):
    """These victims, by uid, stay, and why."""

    uids: frozenset[str]
    why: str


class Try(NamedTuple):
    """Ask with `dryRun` whether the API server would let these victims go: one that it keeps would cost the others."""

    victims: tuple[PlanVictim, ...]


class Notify(NamedTuple):
    """Tell these victims that they are asked to leave in so many seconds."""

    victims: tuple[PlanVictim, ...]
    seconds: float


class Prepare(NamedTuple):
    """Read these victims, or mark them as to be deleted: what is learned by that says whether they may be asked."""

    victims: tuple[PlanVictim, ...]


class Ask(NamedTuple):
    """Ask these victims to leave, side by side."""

    victims: tuple[PlanVictim, ...]


class Wait(NamedTuple):
    """Nothing is to be done until something happens, or until then, in monotonic seconds."""

    until: float


class End(NamedTuple):
    """The plan is over."""

    ending: Ending
    note: str = ""


AboutVictims = Try | Notify | Prepare | Ask
"""What is done about several victims, side by side."""
Step = Nominate | Displace | AboutVictims
"""What is done for a plan, one thing after the other."""
Action = Step | Promise | Spare | Wait | End
