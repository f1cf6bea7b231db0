"""What there is to tell of a policy set: its rights, its exceptions, and what it lacks of the one before it. Pure.

A right decides in two ways: about those who ask for themselves, and about what service accounts and controllers make
for somebody else (docs/policies.md, "Who asks"). Both are said of each, in words.

A set that shrinks is more often an accident than a wish: a merge lost a file, a generator stopped halfway, somebody
tried `warn` in place of `enforce`. So whoever replaces one set by another asks here first. Policies and rules are known
by their ids, and compared by their kind and their enforcement. What else changes in them is for the review of the files
(docs/policies.md).
"""

import math

import msgspec

from webhook.kube.instants import rfc3339
from webhook.policy.evaluation.matching import ANYONE, rights_text
from webhook.policy.model.match import RequestMatch
from webhook.policy.model.policies import Policies
from webhook.policy.model.priority import PriorityPolicy
from webhook.policy.model.rules import DEFINE, STRICTNESS
from webhook.policy.shapes.findings import Finding, Severity
from webhook.policy.shapes.yaml_nodes import SourcePosition

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
    """Every right of a policy set: ranges by value first, then what other rules give."""
    rows: list[RightRow] = []
    for policy, rule in sorted(policies.rules, key=lambda row: row[1].declaration.range or (math.inf, 0)):
        declared, holds = rule.declaration, _holds(policy)
        for right, alternatives in declared.rights.items():
            people, controllers = rights_text(alternatives), SAME
            if right == DEFINE:
                people = rights_text(alternatives, ANYONE)
            elif "CREATE" in declared.operations:
                controllers = ", or ".join(map(_by_controllers, alternatives)) or "nobody"
            rows.append(RightRow(rule.id, declared.title, right, people, controllers, holds, rule.enforcement.value))
    return rows


def _by_controllers(right: RequestMatch) -> str:
    """When one alternative holds for what service accounts and controllers make."""
    if right.subjects is None:
        return rights_text((right,))
    if right.by_namespace:
        return f"{rights_text((msgspec.structs.replace(right, subjects=None),))}, whoever wrote the workload"
    accounts = [subject for subject in right.subjects if subject.kind == "ServiceAccount"]
    exact = [str(subject) for subject in accounts if subject.exact_user]
    return f"what {' or '.join(exact)} makes for itself" if exact else NEVER


def _holds(policy: PriorityPolicy) -> str:
    """Where a policy applies."""
    parts = [] if policy.match == RequestMatch() else [rights_text((policy.match,))]
    if policy.exclude is not None:
        parts.append(f"without {rights_text((policy.exclude,))}")
    if policy.conditions:
        parts.append(f"if {' and '.join(condition.name for condition in policy.conditions)}")
    return ", ".join(parts) or "everywhere"


class ExceptionState(msgspec.Struct, frozen=True, kw_only=True):
    """One exception as of now: from which rules (`policy/rule`), for whom, until when (RFC 3339), and if it is over."""

    rules: tuple[str, ...]
    who: str
    until: str
    owner: str
    reason: str
    ended: bool
    source: SourcePosition

    def __str__(self) -> str:
        """One line for people."""
        when = f"ended {self.until}" if self.ended else f"until {self.until}"
        return f"{', '.join(self.rules)}: {self.who}, {when} ({self.owner}: {self.reason})"


def exceptions(policies: Policies, now: float) -> list[ExceptionState]:
    """Every exception as of `now` (seconds since the epoch), as they end."""
    return [
        ExceptionState(
            rules=tuple(f"{policy.name}/{rule}" for rule in exception.rules),
            who=rights_text((exception.match,)),
            until=rfc3339(exception.until),
            owner=exception.owner,
            reason=exception.reason,
            ended=exception.until <= now,
            source=exception.source,
        )
        for policy, exception in sorted(policies.exceptions, key=lambda row: row[1].until)
    ]


def ended_findings(policies: Policies, now: float) -> list[Finding]:
    """A warning for each exception that has ended: it can be taken out."""
    findings = []
    for exception in exceptions(policies, now):
        if exception.ended:
            text = f"the exception of {exception.who} from {', '.join(exception.rules)} ended {exception.until}"
            instead = f"take it out, or ask its owner for another end ({exception.owner}: {exception.reason})"
            findings.append(Finding(Severity.WARNING, exception.source, f"{text}; {instead}"))
    return findings


def next_end(policies: Policies, now: float) -> float | None:
    """When the next exception ends, in seconds since the epoch; None if none does."""
    ends = [exception.until for _, exception in policies.exceptions]
    return min((end for end in ends if end > now), default=None)


class Removal(msgspec.Struct, frozen=True):
    """What the new set lacks or has softer; `id` is `policy/rule`, or the policy's name."""

    id: str
    what: str

    def __str__(self) -> str:
        """`policy/rule: what`."""
        return f"{self.id}: {self.what}"


def removals(old: Policies, new: Policies) -> list[Removal]:
    """What `new` lacks of `old`, in the order of `old`, or has softer."""
    removed: list[Removal] = []
    there = {rule.id: rule for _, rule in new.rules}
    names = {policy.name for policy in new.priority}
    for policy in old.priority:
        if policy.name not in names:
            what = f"the PriorityPolicy with its {len(policy.rules)} rules is gone"
            removed.append(Removal(policy.name, what))
            continue
        for rule in policy.rules:
            now = there.get(rule.id)
            if now is None:
                removed.append(Removal(rule.id, "the rule is gone"))
                continue
            if STRICTNESS.index(now.enforcement) < STRICTNESS.index(rule.enforcement):
                what = f"enforcement {rule.enforcement.value} becomes {now.enforcement.value}"
                removed.append(Removal(rule.id, what))
            if now.body[0] != rule.body[0]:
                removed.append(Removal(rule.id, "it is a rule of another kind now"))
    names = {policy.name for policy in new.preemption}
    gone = "the PreemptionPolicy is gone: nothing preempts for pods of its classes"
    removed += (Removal(policy.name, gone) for policy in old.preemption if policy.name not in names)
    return removed
