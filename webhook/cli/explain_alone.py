"""What a pod tells by itself, for whoever may read the pod and little more."""

from __future__ import annotations

from collections.abc import Sequence

from webhook.cli.decide_explain import listed
from webhook.cli.output import literal, people_console
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.policy.model.values import CAN_BE_PREEMPTED, PROTECTION_DURATION, READY
from webhook.preemption.snapshot.pod_groups import with_all_of
from webhook.reconciler.preemptors import PolicySet, ineligible_reason, is_marked
from webhook.reconciler.state.annotations import UnreadableError, decision_of, plan_of
from webhook.reconciler.state.notices import is_ready, notice_of


def explain_alone(pod: Pod, policy_set: PolicySet | None, unreadable: Sequence[str], absent: str = "") -> None:
    """Print what the pod says; `policy_set` is None if the policies in force are not known.

    `unreadable` is what could not be read, and `absent` why there are no policies, for the one sentence that says so.
    """
    console = people_console()
    key, spec = literal(key_of(pod)), pod.spec
    lines = [f"{key} has PriorityClass {literal(spec.priority_class_name or 'none')}, priority {spec.priority or 0}."]
    if spec.node_name:
        lines += [f"It runs on {literal(spec.node_name)}.", *_as_victim(pod)]
    elif policy_set is not None:
        why_not = ineligible_reason(pod, policy_set.policy_of(pod))
        lines.append(f"It is not acted for: {literal(why_not)}." if why_not else "giveway acts for it.")
    elif is_marked(pod):
        lines.append("giveway preempts for it, if its scheduler finds no room.")
    else:
        lines.append("giveway does not preempt for it: no policy manages its class.")
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            lines.append(f"Its scheduler says: {literal(condition.message or condition.reason or 'no reason')}")
    lines += map(literal, written_on(pod))
    for line in lines:
        console.print(line, soft_wrap=True)
    names = ", ".join(dict.fromkeys(unreadable))  # PodGroups are of three APIs
    reasons = [*([f"you may not read {names} of the whole cluster"] if names else []), *([absent] if absent else [])]
    console.print(
        f"What preemption would do now is not said, because {literal(', and '.join(reasons))}.",
        style="dim",
        soft_wrap=True,
    )


def _as_victim(pod: Pod) -> list[str]:
    """What its annotations say of evicting it."""
    annotations, lines = pod.metadata.annotations or {}, []
    if CAN_BE_PREEMPTED in annotations:
        lines.append(f"Annotation {CAN_BE_PREEMPTED}: {literal(annotations[CAN_BE_PREEMPTED])}.")
    if PROTECTION_DURATION in annotations:
        since = f", from {pod.status.start_time} on" if pod.status.start_time else ""
        lines.append(f"It is protected for {literal(annotations[PROTECTION_DURATION])} s{since}.")
    return lines


def written_on(pod: Pod) -> list[str]:
    """What is written on the pod of plans past and present."""
    lines = []
    if (notice := notice_of(pod)) is not None:
        whom = f"pod {notice.preemptor}" if notice.preemptor else f"a pod of another namespace (uid {notice.uid})"
        lines.append(f"It is asked to leave by {notice.by}, for {whom} of priority {notice.priority}.")
        ready = is_ready(pod, notice.plan)
        lines.append("It says that it is ready to leave." if ready else f"With {READY}=true it is asked at once.")
    decision = decision_of(pod)
    if decision is not None:
        victims = ", ".join(victim.pod for victim in decision.victims) or "nobody"
        victims += f" and {decision.more_victims} more" if decision.more_victims else ""
        victims += with_all_of(victim.group or "" for victim in decision.victims)
        lines.append(
            f"Last decision, at {decision.at}: node {decision.node}, to evict {victims} (attempt {decision.attempt})."
        )
        if decision.because:
            lines.append(f"Why that node: {decision.because}.")
        if decision.left_out:
            names = listed(list(decision.left_out))
            lines.append(f"Left out then, since the scheduler did not bind it there though there was room: {names}.")
    try:
        plan = plan_of(pod)
    except UnreadableError as error:
        return [*lines, f"Plan: {error}."]
    if plan is not None and not pod.status.nominated_node_name and not pod.spec.node_name:
        lines.append(
            f"A plan for node {plan.node} is under way until {plan.deadline}. The scheduler cleared the nomination, "
            "so nothing reserves the room; a profile without PostFilter plugins does that at every failed attempt."
        )
    elif plan is not None:
        lines.append(f"A plan is under way: node {plan.node} is reserved until {plan.deadline}.")
        if plan.notice:
            lines.append(f"Its victims are told {plan.notice:g} s before they are asked to leave.")
    elif pod.status.nominated_node_name and not pod.spec.node_name:
        lines.append(f"It is nominated to {pod.status.nominated_node_name}, though not by giveway.")
    return lines
