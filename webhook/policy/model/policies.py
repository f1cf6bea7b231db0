"""All policies of a directory."""

import msgspec

from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.priority import PriorityPolicy


class Policies(msgspec.Struct, frozen=True, kw_only=True):
    """Every policy of a directory, in the order of file names and of documents in them."""

    priority: tuple[PriorityPolicy, ...] = ()
    preemption: tuple[PreemptionPolicy, ...] = ()
