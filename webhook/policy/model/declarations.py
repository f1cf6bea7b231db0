"""What the body of a rule says of itself, for all who must know it without understanding the body.

A body is a struct with a property `declaration`. One that lacks it counts as `UNDECLARED`: it reads every field of
every object, who asks makes a difference, and nobody knows what rights it gives. So a new body is judged in full before
anybody has thought of what it needs; its declaration makes it cheaper, never safer.
"""

from __future__ import annotations

import msgspec

FieldPath = tuple[str, ...]
"""Where a field of an object stands, such as `("spec", "priority")`. The key of an annotation is one step."""

FIELDS_OF_PRIORITY = frozenset({("spec", "priorityClassName"), ("spec", "priority")})
"""What of a pod says its priority."""


class RightGiven(msgspec.Struct, frozen=True):
    """A right that a body gives: the field of the body that says who has it, and the alternatives in it."""

    field: str
    alternatives: tuple[msgspec.Struct, ...]


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """What one body reads, whether who asks makes a difference, and what rights it gives.

    `about` are the resources that it judges. `fields` are the fields of the object that it looks at besides what its
    expressions read; None: any. `expressions` are the CEL expressions that decide. `always_asked` says that it is asked
    about every request for a resource in `about`; others are found by the priority, or by an annotation that changes.
    `asks_who` is about what the body says of pods. `rights` is None if nobody knows which rights the body gives.
    """

    about: frozenset[str] = frozenset({"pods", "priorityclasses"})
    fields: frozenset[FieldPath] | None = None
    expressions: tuple[str, ...] = ()
    always_asked: bool = True
    asks_who: bool = True
    rights: tuple[RightGiven, ...] | None = None

    @property
    def judges_groups(self) -> bool:
        """Whether the body judges PodGroups, too, of which nothing is known but a priority.

        One that does not say what it reads is asked, and must bear that the rest of a pod is missing.
        """
        if self.expressions or "pods" not in self.about:
            return False
        return self.fields is None or self.fields <= FIELDS_OF_PRIORITY


UNDECLARED = Declaration()
"""What is true of a body that says nothing of itself."""
