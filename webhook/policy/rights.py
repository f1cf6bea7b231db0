"""Who may do what by a policy set, right by right, in words: for `giveway lint --explain` and docs/policies.md.

A right decides in two ways: about those who ask for themselves, and about what service accounts and controllers make
for somebody else (docs/policies.md, "Who asks"). Both are said of each. Pure.
"""

from collections.abc import Iterator

import msgspec

from webhook.policy.evaluation.matching import definers_text, rights_text
from webhook.policy.model.declarations import DEFINE
from webhook.policy.model.match import RequestMatch
from webhook.policy.model.policies import Policies
from webhook.policy.model.priority import PriorityPolicy
from webhook.policy.model.rules import PriorityRule

SAME = "the same: who asks decides"
NEVER = "never: it names subjects and no namespaces"


class RightRow(msgspec.Struct, frozen=True, rename="camel"):
    """One right of a rule: `people` and whoever else asks for themselves, and `controllers`, by which it holds.

    `holds` says where the policy applies, `right` is `use`, `define` or `allow`, `about` the range or the annotations.
    """

    rule: str
    about: str
    right: str
    people: str
    controllers: str
    holds: str
    enforcement: str


def rights_of(policies: Policies) -> list[RightRow]:
    """Every right of a policy set, ranges by their value first, then what other rules give."""
    ranges: list[tuple[int, RightRow]] = []
    others: list[RightRow] = []
    for policy in policies.priority:
        for rule in policy.rules:
            rows = list(_rows(policy, rule))
            reserved = rule.declaration.range
            if reserved is not None:
                ranges += [(reserved[0], row) for row in rows]
            else:
                others += rows
    return [row for _, row in sorted(ranges, key=lambda row: row[0])] + others


def _rows(policy: PriorityPolicy, rule: PriorityRule) -> Iterator[RightRow]:
    """The rights that a rule declares."""
    holds, declaration = _holds(policy), rule.declaration

    def row(right: str, people: str, controllers: str) -> RightRow:
        rule_id, enforcement = f"{policy.name}/{rule.name}", rule.enforcement.value
        return RightRow(rule_id, declaration.title, right, people, controllers, holds, enforcement)

    for right, alternatives in declaration.rights.items():
        if right == DEFINE:
            yield row(right, definers_text(alternatives), SAME)
            continue
        made = "CREATE" in declaration.operations
        controllers = ", or ".join(map(_by_controllers, alternatives)) or "nobody" if made else SAME
        yield row(right, rights_text(alternatives), controllers)


def _by_controllers(right: RequestMatch) -> str:
    """When one alternative holds for what service accounts and controllers make."""
    if right.subjects is None:
        return rights_text((right,))
    if right.by_namespace:
        return f"{rights_text((msgspec.structs.replace(right, subjects=None),))}, whoever wrote the workload"
    exact = [str(subject) for subject in right.subjects if subject.kind == "ServiceAccount" and subject.exact_user]
    return f"what {' or '.join(exact)} makes for itself" if exact else NEVER


def _holds(policy: PriorityPolicy) -> str:
    """Where a policy applies."""
    parts = [] if policy.match == RequestMatch() else [rights_text((policy.match,))]
    if policy.exclude is not None:
        parts.append(f"without {rights_text((policy.exclude,))}")
    if policy.conditions:
        parts.append(f"if {' and '.join(condition.name for condition in policy.conditions)}")
    return ", ".join(parts) or "everywhere"
