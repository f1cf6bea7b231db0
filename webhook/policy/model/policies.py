"""All policies of a directory."""

from collections.abc import Iterator

import msgspec

from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.priority import PriorityPolicy
from webhook.policy.model.rules import PriorityRule


class Policies(msgspec.Struct, frozen=True, kw_only=True):
    """Every policy of a directory, in the order of file names and of documents in them."""

    priority: tuple[PriorityPolicy, ...] = ()
    preemption: tuple[PreemptionPolicy, ...] = ()

    @property
    def rules(self) -> Iterator[tuple[str, PriorityPolicy, PriorityRule]]:
        """Every rule, with its policy and the id by which texts name it: `policy/rule`."""
        for policy in self.priority:
            for rule in policy.rules:
                yield f"{policy.name}/{rule.name}", policy, rule
