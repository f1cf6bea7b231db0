"""What the cluster's changes and the time mean for plans, as told to whoever asked; nothing here calls back."""

from __future__ import annotations

from typing import NamedTuple

from webhook.kube.objects.pod import Pod
from webhook.reconciler.plans.actions import Step
from webhook.reconciler.plans.endings import Ending
from webhook.reconciler.plans.plan import Plan


class PlanEnded(NamedTuple):
    """A plan is over: nothing of it is expected any more but that the pods it asked leave."""

    plan: Plan
    ending: Ending
    note: str = ""


class PlanActs(NamedTuple):
    """This is to be done for a plan; the look that found it took so many seconds."""

    plan: Plan
    step: Step
    seconds: float


class AllAsked(NamedTuple):
    """All victims of a plan have been asked to leave."""

    plan: Plan


class NominationCleared(NamedTuple):
    """The scheduler cleared a plan's nomination, though nobody may have taken the room."""

    plan: Plan
    pod: Pod


class VictimsCountAsGone(NamedTuple):
    """The victims of a rehearsed plan have had their time to end."""

    plan: Plan


News = PlanEnded | PlanActs | AllAsked | NominationCleared | VictimsCountAsGone
