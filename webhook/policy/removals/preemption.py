"""What a PreemptionPolicy gives up: pods that it no longer serves, weaker protection, more evictions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from webhook.policy.model import (
    BudgetMode,
    CycleKeeper,
    Cycles,
    EvictionCost,
    EvictionMode,
    ExtenderConfig,
    GroupDisruption,
    Groups,
    LabelRate,
    Limits,
    LostWork,
    PreemptibilityAnnotations,
    PreemptionPolicy,
    Preemptors,
    Protection,
    Rate,
    Schedule,
    Signal,
    VictimMode,
    Victims,
    WorkloadLimit,
)
from webhook.policy.model.schedule import no_less_often
from webhook.policy.model.victims import ANY
from webhook.policy.removals.fields import compares, gives_nothing_up, weaker
from webhook.policy.removals.rights import lost
from webhook.policy.shapes.object_shape import yaml_name

__all__ = ["given_up_by_preemption_policy"]


def given_up_by_preemption_policy(old: PreemptionPolicy, new: PreemptionPolicy | None) -> Iterator[str]:
    """Whom a PreemptionPolicy no longer serves, what it no longer protects, and how much more it may evict."""
    if new is None:
        yield "the PreemptionPolicy is gone: nothing preempts for pods of its classes"
    else:
        yield from weaker(old, new)


gives_nothing_up(Preemptors, "delay", "scale_up_delay")


@compares(Preemptors, "resize")
def _resize(old: Preemptors, new: Preemptors) -> Iterator[str]:
    """Either way somebody loses: the pods that may be evicted for others, or those that wait for room."""
    if new.resize and not old.resize:
        yield "pods are evicted for pods that want to grow in place, too"
    elif old.resize and not new.resize:
        yield "nobody makes room any more for pods that want to grow in place"


gives_nothing_up(Victims, "cost")  # who of equal priority goes: somebody gains what another one loses
gives_nothing_up(
    EvictionCost, "readiness", "group_restarts", "deletion_cost", "lost_work", "recent_evictions", "grace_period"
)
gives_nothing_up(LostWork, "checkpoints")
gives_nothing_up(PreemptionPolicy, "plan_timeout", "wait_for_terminating", "name_preemptor")
gives_nothing_up(ExtenderConfig, "url_prefix", "preempt_verb", "http_timeout")  # the address tells extenders apart


@compares(PreemptionPolicy, "schedule")
def _schedule(old: PreemptionPolicy, new: PreemptionPolicy) -> Iterator[str]:
    """At other times other pods are evicted, and other pods wait: one is given up by more, the other by less."""
    if new.schedule != old.schedule:
        yield f"it evicts at other times: {_when(new.schedule)} instead of {_when(old.schedule)}"


@compares(Preemptors, "priority_classes", "twins", "scheduler_names")
def _preemptors(old: Preemptors, new: Preemptors) -> Iterator[str]:
    yield from lost("classes are no longer managed", old.priority_classes, new.priority_classes)
    yield from lost("classes have no twin any more", tuple(old.twins), tuple(new.twins))
    yield from lost("schedulers are no longer served", old.scheduler_names, new.scheduler_names)


@compares(Victims, "notice")
def _notice(old: Victims, new: Victims) -> Iterator[str]:
    if new.notice < old.notice:
        yield f"victims are told {new.notice:g} s before they are asked to leave, not {old.notice:g} s"


@compares(Victims, "mode")
def _mode(old: Victims, new: Victims) -> Iterator[str]:
    if old.mode is VictimMode.OPT_IN and new.mode is VictimMode.OPT_OUT:
        yield "pods need no longer opt in to be evicted"


@compares(PreemptibilityAnnotations, "preemptible", "protection")
def _annotations(old: PreemptibilityAnnotations, new: PreemptibilityAnnotations) -> Iterator[str]:
    yield from lost("more annotations make a pod preemptible", new.preemptible, old.preemptible)
    yield from lost("annotations no longer protect", old.protection, new.protection)


@compares(Victims, "signals")
def _signals(old: Victims, new: Victims) -> Iterator[str]:
    """Those of the same annotation, in their order; one that is not there is one that says nothing."""
    for key in dict.fromkeys(signal.annotation for signal in (*old.signals, *new.signals)):
        both = ([signal for signal in victims.signals if signal.annotation == key] for victims in (old, new))
        for before, now in zip_longest(*both, fillvalue=Signal(annotation=key)):
            yield from weaker(before, now, f"victims.signals[{key}].")


gives_nothing_up(Signal, "annotation")  # two of the same annotation are compared


@compares(Signal, "protects", "permits", "duration")
def _signal(old: Signal, new: Signal) -> Iterator[str]:
    yield from lost(f"values of {old.annotation} no longer protect", old.protects, new.protects)
    if old.duration and not new.duration:
        yield f"a duration in {old.annotation} no longer protects"
    yield from lost(f"values of {old.annotation} make a pod preemptible", new.permits, old.permits)


@compares(Victims, "preemption_toleration")
def _preemption_toleration(old: Victims, new: Victims) -> Iterator[str]:
    if old.preemption_toleration and not new.preemption_toleration:
        yield "the annotations of PreemptionToleration no longer protect"


@compares(Victims, "scheduler_names")
def _victims_schedulers(old: Victims, new: Victims) -> Iterator[str]:
    """That another mode has another default is told of the mode."""
    names = new.scheduler_names if old.scheduler_names is None else new.schedulers
    if ANY not in old.schedulers and names is not None:
        yield from lost("pods of more schedulers may be evicted", names, old.schedulers)


@compares(Victims, "pairs")
def _pairs(old: Victims, new: Victims) -> Iterator[str]:
    if old.pairs is not None and not (new.pairs is not None and all(pair in old.pairs for pair in new.pairs)):
        yield "more pairs of preemptors and victims are allowed"


@compares(PreemptionPolicy, "budgets")
def _budgets(old: PreemptionPolicy, new: PreemptionPolicy) -> Iterator[str]:
    if old.budgets is BudgetMode.STRICT and new.budgets is BudgetMode.BEST_EFFORT:
        yield "budgets may be broken"


@compares(Protection, "default", "maximum")
def _protection(old: Protection, new: Protection) -> Iterator[str]:
    if new.default < old.default:
        yield f"pods are protected for {new.default:g} s instead of {old.default:g} s"
    if new.maximum is not None and new.maximum < (old.maximum or float("inf")):
        yield f"pods may ask for at most {new.maximum:g} s of protection"


@compares(Protection, "schedule")
def _protection_schedule(old: Protection, new: Protection) -> Iterator[str]:
    if not no_less_often(new.schedule, old.schedule):
        yield f"pods are protected {_when(new.schedule)} instead of {_when(old.schedule)}"


@compares(Groups, "disruption")
def _groups(old: Groups, new: Groups) -> Iterator[str]:
    before, after = old.disruption, new.disruption
    if after not in (before, GroupDisruption.NEVER):
        yield f"groups of pods are disrupted by {after.value} instead of {before.value}"


@compares(PreemptionPolicy, "eviction")
def _eviction(old: PreemptionPolicy, new: PreemptionPolicy) -> Iterator[str]:
    if old.eviction is EvictionMode.EVICT and new.eviction is EvictionMode.DELETE:
        yield "victims are deleted instead of evicted"


@compares(PreemptionPolicy, "grace_period")
def _grace_period(old: PreemptionPolicy, new: PreemptionPolicy) -> Iterator[str]:
    if new.grace_period is not None and (old.grace_period is None or new.grace_period < old.grace_period):
        yield f"victims have only {new.grace_period} s to end"


_RATES = ("per_owner", "per_workload", "per_node", "per_namespace", "per_label", "per_cluster")


@compares(Limits, *_RATES)
def _rates(old: Limits, new: Limits) -> Iterator[str]:
    for field in _RATES:
        before, now = getattr(old, field), getattr(new, field)
        if before is not None:
            for what in ["is gone"] if now is None else weaker(before, now):
                yield f"the limit {yaml_name(field)} {what}"


@compares(LabelRate, "label")
def _label(old: LabelRate, new: LabelRate) -> Iterator[str]:
    if new.label != old.label:
        yield f"counts by the label {new.label} instead of {old.label}"


@compares(WorkloadLimit, "evictions", "window")
@compares(LabelRate, "evictions", "window")
@compares(Rate, "evictions", "window")
def _rate(old: Rate | LabelRate | WorkloadLimit, new: Rate | LabelRate | WorkloadLimit) -> Iterator[str]:
    if new.evictions > old.evictions or new.window < old.window:
        yield "allows more evictions"


@compares(LabelRate, "schedule")
@compares(Rate, "schedule")
def _rate_schedule(old: Rate | LabelRate, new: Rate | LabelRate) -> Iterator[str]:
    if not no_less_often(new.schedule, old.schedule):
        yield f"holds {_when(new.schedule)} instead of {_when(old.schedule)}"


@compares(Cycles, "keep", "window")
def _cycles(old: Cycles, new: Cycles) -> Iterator[str]:
    if old.keep is CycleKeeper.EVICTOR and (new.keep is not old.keep or new.window < old.window):
        yield "workloads may evict each other in turn"


@compares(Limits, "attempts_per_preemptor")
def _attempts(old: Limits, new: Limits) -> Iterator[str]:
    attempts, were = new.attempts_per_preemptor, old.attempts_per_preemptor
    if attempts > were:
        yield f"attemptsPerPreemptor rises from {were} to {attempts}"


@compares(PreemptionPolicy, "extenders")
def _extenders(old: PreemptionPolicy, new: PreemptionPolicy) -> Iterator[str]:
    asked = {(extender.url_prefix, extender.preempt_verb): extender for extender in new.extenders}
    for extender in old.extenders:
        now = asked.get((extender.url_prefix, extender.preempt_verb))
        changes = ["is no longer asked"] if now is None else weaker(extender, now)
        for what in changes:
            yield f"the extender {extender.url_prefix}/{extender.preempt_verb} {what}"


@compares(ExtenderConfig, "ignorable", "managed_resources")
def _extender(old: ExtenderConfig, new: ExtenderConfig) -> Iterator[str]:
    if new.ignorable and not old.ignorable:
        yield "is passed over if it fails"
    elif new.managed_resources and not set(old.managed_resources or ("",)) <= set(new.managed_resources):
        yield "is asked about fewer pods"


def _when(schedule: Schedule | None) -> str:
    return "always" if schedule is None else f"only by the schedule {schedule}"
