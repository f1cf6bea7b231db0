"""What a policy set lacks of the one before it: policies and rules that are gone, and verdicts that are softer.

A set that shrinks is more often an accident than a wish: a merge lost a file, a generator stopped halfway, somebody
tried `warn` in place of `enforce`. So whoever replaces one set by another asks here first. Policies and rules are known
by their ids, and compared by their kind and their enforcement. What else changes in them is for the review of the files
(docs/policies.md). Pure.
"""

import msgspec

from webhook.policy.model.policies import Policies
from webhook.policy.model.rules import STRICTNESS


class Removal(msgspec.Struct, frozen=True):
    """One thing that the new set no longer has, or that refuses less.

    `id` is `policy/rule`, or the policy's name if it is about the policy as a whole.
    """

    id: str
    what: str

    def __str__(self) -> str:
        """`policy/rule: what`."""
        return f"{self.id}: {self.what}"


def removals(old: Policies, new: Policies) -> list[Removal]:
    """What `new` lacks of `old`, in the order of `old`; empty if every policy and rule is there and no softer."""
    removed: list[Removal] = []
    there = {policy.name: policy for policy in new.priority}
    for policy in old.priority:
        if (now := there.get(policy.name)) is None:
            removed.append(Removal(policy.name, f"the PriorityPolicy with its {len(policy.rules)} rules is gone"))
            continue
        rules = {rule.name: rule for rule in now.rules}
        for rule in policy.rules:
            rule_id, new_rule = f"{policy.name}/{rule.name}", rules.get(rule.name)
            if new_rule is None:
                removed.append(Removal(rule_id, "the rule is gone"))
                continue
            if STRICTNESS.index(new_rule.enforcement) < STRICTNESS.index(rule.enforcement):
                what = f"enforcement {rule.enforcement.value} becomes {new_rule.enforcement.value}"
                removed.append(Removal(rule_id, what))
            if new_rule.body[0] != rule.body[0]:
                removed.append(Removal(rule_id, "it is a rule of another kind now"))
    names = {policy.name for policy in new.preemption}
    gone = "the PreemptionPolicy is gone: nothing preempts for pods of its classes"
    return removed + [Removal(policy.name, gone) for policy in old.preemption if policy.name not in names]
