"""What compiling needs everywhere: settings, the time, a table of classes, and where to say what cannot be given.

What expressions must know of the cluster's PriorityClasses is a table, written into them as literals.

A pod's priority, its preemption policy and who may preempt stand in the pod itself, because the Priority plugin has
filled them in. A class that a pod is given is a parameter of the policy, which the API server reads from the same
cache as its plugin. The table is needed for what the pod's class says in annotations.

An entry is found by the class as the plugin resolved it for the pod at hand: by name, value and preemption policy, of
which the last two never change while a class lives. So an entry of a class that was deleted, or made again with other
numbers, is never found. The API server makes a map of a literal once, when it takes a policy into use: a name costs the
same among 5 classes and 1000. As parameters (`paramKind`) each class would be an evaluation of its own.
"""

import re
from collections.abc import Iterable, Sequence

import msgspec

from webhook.admission.resolving import NEVER
from webhook.kube.instants import epoch_or
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.native.expressions import mapping, quote
from webhook.native.objects import Settings
from webhook.policy.model.policies import Policies

LONGEST_EXPRESSION = 100_000
"""Characters of an expression that the API server's parser takes (cel-go, `ExpressionSizeCodePointLimit`)."""
NOT_IN_TABLE = f"it has quotes, is too long, or finds no room among {LONGEST_EXPRESSION} characters"
_IF_NEVER = "/Never"
_RECORDABLE = re.compile(r"[ !#-\[\]-~]{0,64}")
"""Values that stand in the record `giveway.dev/given` as they are: neither escaped nor shortened."""
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
        if self.enforced:
            return f"enforced natively, with a difference: {self}"
        return f"not enforced natively: {self}"


class Sink:
    """What compiling needs everywhere, and what is `inexpressible`; the table is empty if no classes are `known`."""

    def __init__(
        self,
        policies: Policies,
        classes: Iterable[PriorityClass] | None,
        settings: Settings,
        now: float,
    ) -> None:
        self.settings, self.now, self.known = settings, now, classes is not None
        self.inexpressible: list[Inexpressible] = []
        rules = [rule for policy in policies.priority for rule in policy.rules]
        bands = [rule.reserve for rule in rules if rule.reserve is not None]

        def importance(class_: PriorityClass) -> tuple[bool, float, str]:
            """Those in a range, which not everybody may define, then the older ones: more displace nobody's."""
            metadata, value = class_.metadata, class_.value
            made = epoch_or(metadata.creation_timestamp, 0.0)
            reserved = any(band.from_ <= value <= band.to for band in bands)
            return not reserved, made, metadata.name

        self._classes = sorted(classes or (), key=importance)

    def names(self, *, default: bool = False) -> list[str]:
        """The classes; with `default` those of which the Priority plugin fills in one."""
        classes = self._classes
        if default:
            classes = [class_ for class_ in classes if class_.global_default]
        return sorted(class_.metadata.name for class_ in classes)

    def annotation(self, key: str) -> tuple[str, list[str]]:
        """The literal of what classes say for an annotation, and those that do not fit in."""
        room, rows, left_out = LONGEST_EXPRESSION, list[tuple[str, str]](), list[str]()
        for class_ in self._classes:
            value = (class_.metadata.annotations or {}).get(key)
            if value is None:
                continue
            never = _IF_NEVER if class_.preemption_policy == NEVER else ""
            row = f"{class_.metadata.name}/{class_.value}{never}", quote(value)
            recordable = _RECORDABLE.fullmatch(value) is not None
            room -= len(mapping([row])) if recordable else 0
            if recordable and room >= 0:
                rows.append(row)
            else:
                left_out.append(class_.metadata.name)
        return mapping(sorted(rows)), sorted(left_out)

    def lacks(self, rule: str, reason: object, *, enforced: bool = False) -> None:
        """Note what the API server cannot be given of a rule."""
        self.inexpressible.append(Inexpressible(rule, str(reason), enforced))

    def differs(self, rule: str, key: str) -> None:
        """Note the classes whose annotation the rule does not know natively."""
        names = self.annotation(key)[1]
        if not names:
            return
        shown = ", ".join(names[:_NAMED])
        if len(names) > _NAMED:
            shown += f" and {len(names) - _NAMED} more"
        reason = f"{key} of PriorityClass {shown} is not known here"
        reason += f": {NOT_IN_TABLE}"
        lack = Inexpressible(rule, reason, enforced=True, by_classes=True)
        self.inexpressible.append(lack)


def resolved(name: str, priority: str, preemption_policy: str) -> str:
    """The key of an entry, as an expression of these: what the Priority plugin resolved a class to."""
    is_never = f"{preemption_policy} == {quote(NEVER)}"
    never = f"{is_never} ? {quote(_IF_NEVER)} : ''"
    return f"{name} + '/' + string({priority}) + ({never})"


def value_variable(key: str, keys: Sequence[str]) -> str:
    """The variable with what classes say for an annotation: `class1_may_go` for the second key."""
    ending = re.sub("[^A-Za-z0-9]", "_", key.rpartition("/")[2])
    return f"class{keys.index(key)}_{ending}"
