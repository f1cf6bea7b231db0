"""Every rule of every policy, and why it did or did not apply to a request: for `--explain`, not for speed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from webhook.policy.compiling import CompiledPolicy
from webhook.policy.facts import CLASSES, PODS, Facts
from webhook.policy.hearing import Hearing
from webhook.policy.model import Reserve, Rule
from webhook.policy.shielding import BUILTIN, SHIELD
from webhook.policy.verdict import Considered, Verdict

__all__ = ["explain"]


def explain(hearing: Hearing, policies: Iterable[CompiledPolicy]) -> Iterator[Considered]:
    """One row for each rule, in the order of the files; the built-in shield last."""
    said = {verdict.id: verdict for verdict in hearing.verdicts}
    for policy in policies:
        standing = policy.standing(hearing.facts)
        for rule in policy.policy.rules:
            yield _row(hearing, policy, rule, standing, said.get(f"{policy.name}/{rule.name}"))
    shield = said.get(f"{BUILTIN}/{SHIELD}")
    why = shield.message if shield else "no protected annotation changes without the right to it"
    yield Considered(BUILTIN, SHIELD, shield is not None, shield.outcome if shield else "skip", why)


def _row(
    hearing: Hearing, policy: CompiledPolicy, rule: Rule, standing: str | Verdict | None, verdict: Verdict | None
) -> Considered:
    if verdict is not None:
        return Considered(policy.name, rule.name, True, verdict.outcome, verdict.message or "it allows the request")
    if isinstance(standing, Verdict):
        return Considered(policy.name, rule.name, False, "error", standing.message)
    if standing is not None:
        return Considered(policy.name, rule.name, False, "skip", standing)
    ruling = hearing.rulings.get(f"{policy.name}/{rule.name}")
    if ruling is not None:
        return Considered(policy.name, rule.name, False, "skip", ruling.message)
    applied, why = _unasked(rule, hearing.facts)
    return Considered(policy.name, rule.name, applied, "allow" if applied else "skip", why)


def _unasked(rule: Rule, facts: Facts) -> tuple[bool, str]:
    """Whether a rule that gives no verdict had a part in the request, and why."""
    if rule.reserve is not None:
        return False, _outside(rule.reserve, facts)
    if rule.protect_annotations is not None:
        return False, "no annotation it protects changes"
    if rule.validate is not None:
        return False, f"it is about {', '.join(rule.validate.resources)}"
    if facts.kind == CLASSES:
        return False, "it is about pods"
    if facts.template or facts.operation != "CREATE":
        return False, "it acts when a pod is created"
    if rule.default_priority_class is not None:
        given = facts.class_name == rule.default_priority_class
        return (
            given,
            f"the pod has PriorityClass {facts.class_name or 'none'}; the default is {rule.default_priority_class}",
        )
    return True, f"a new pod takes over {', '.join(rule.copy_annotations or ())} from its PriorityClass"


def _outside(reserve: Reserve, facts: Facts) -> str:
    what = "priority" if facts.kind == PODS else "value"
    return f"{what} {facts.value} does not lie in {reserve.from_} to {reserve.to}"
