"""What the body of a rule says of itself, for all who must know it without understanding the body.

Who reads, lists, compiles and tries rules goes by the declaration: what a body leaves out nobody hands it.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

FieldPath = tuple[str, ...]
"""Where a field of an object stands, such as `("spec", "priority")`. The key of an annotation is one step."""

FIELDS_OF_PRIORITY = frozenset({("spec", "priorityClassName"), ("spec", "priority")})
"""What of a pod says its priority."""
DEFINE = "define"
"""The right to define a class, which is no matter of pods."""


def reads_user(expression: str) -> bool:
    """Whether a CEL expression may read who asks: `request.userInfo`, however it is written."""
    return "userInfo" in expression


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """What one body reads, and what rights it gives.

    `about` are the resources that it judges, `operations` when. `fields` are the fields of the object that it looks at
    besides what its expressions read. `expressions` are the CEL expressions that decide. `always_asked` says that it is
    asked about every request for a resource in `about`; others are found by the priority, or by an annotation that
    changes. `refuses` is false of what fills something in. `range` are the values that it reserves, both ends included,
    `classes` the names and globs of PriorityClasses that it lists, `keys` the annotations that it protects. `rights`
    has the alternatives of each right, by the field of the body that says who has it, and `title` says to what.
    """

    about: tuple[str, ...] = ("pods", "priorityclasses")
    operations: tuple[str, ...] = ("CREATE", "UPDATE")
    fields: frozenset[FieldPath] = frozenset()
    expressions: tuple[str, ...] = ()
    always_asked: bool = True
    refuses: bool = True
    range: tuple[int, int] | None = None
    classes: tuple[str, ...] | None = None
    keys: tuple[str, ...] = ()
    rights: Mapping[str, tuple[Any, ...]] = {}
    title: str = ""

    @property
    def asks_who(self) -> bool:
        """Whether who asks makes a difference to what the body says of pods."""
        rights = [right for field, given in self.rights.items() if field != DEFINE for right in given]
        return any(right.subjects is not None for right in rights) or any(map(reads_user, self.expressions))

    @property
    def judges_groups(self) -> bool:
        """Whether the body judges PodGroups, too, of which nothing is known but a priority."""
        return "pods" in self.about and not self.expressions and self.fields <= FIELDS_OF_PRIORITY

    @property
    def of_new_pods(self) -> bool:
        """Whether the body judges pods that are made."""
        return "pods" in self.about and "CREATE" in self.operations
