"""All policies of a directory."""

from collections.abc import Iterator

import msgspec

from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.priority import PolicyException, PriorityPolicy
from webhook.policy.model.rules import PriorityRule


class Policies(msgspec.Struct, frozen=True, kw_only=True):
    """Every policy of a directory, in the order of file names and of documents in them."""

    priority: tuple[PriorityPolicy, ...] = ()
    preemption: tuple[PreemptionPolicy, ...] = ()

    @property
    def rules(self) -> Iterator[tuple[PriorityPolicy, PriorityRule]]:
        """Every rule, with its policy."""
        for policy in self.priority:
            for rule in policy.rules:
                yield policy, rule

    @property
    def exceptions(self) -> Iterator[tuple[PriorityPolicy, PolicyException]]:
        """Every exception, with its policy."""
        for policy in self.priority:
            for exception in policy.exceptions:
                yield policy, exception
