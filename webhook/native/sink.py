"""What compiling needs everywhere: the settings, the time, the classes, and where to say what cannot be given."""

from typing import NamedTuple

import msgspec

from webhook.native.objects import Settings
from webhook.native.table import NOT_IN_TABLE, ClassTable

_NAMED = 5
"""Classes that are named where several are not known."""


class Inexpressible(msgspec.Struct, frozen=True):
    """A rule, or a part of one, that the API server cannot be given, and why.

    `enforced` if the rule holds all the same, but for what the reason names. `by_classes` if that follows from the
    cluster's PriorityClasses, which others make.
    """

    rule: str
    reason: str
    enforced: bool = False
    by_classes: bool = False

    def __str__(self) -> str:
        """`policy/rule: reason`."""
        return f"{self.rule}: {self.reason}"

    @property
    def told(self) -> str:
        """What people read, with whether the rule is enforced."""
        return f"{'enforced natively, with a difference' if self.enforced else 'not enforced natively'}: {self}"


class Sink(NamedTuple):
    """What compiling needs everywhere; `inexpressible` is what the API server cannot be given so far."""

    settings: Settings
    now: float
    table: ClassTable
    inexpressible: list[Inexpressible]

    def lacks(self, rule: str, reason: object, *, enforced: bool = False) -> None:
        """Note what the API server cannot be given of a rule."""
        self.inexpressible.append(Inexpressible(rule, str(reason), enforced))

    def differs(self, rule: str, key: str) -> None:
        """Note the classes whose annotation the rule does not know natively."""
        if names := self.table.left_out(key):
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            reason = f"{key} of PriorityClass {', '.join(names[:_NAMED])}{more} is not known here: {NOT_IN_TABLE}"
            self.inexpressible.append(Inexpressible(rule, reason, enforced=True, by_classes=True))
