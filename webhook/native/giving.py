"""The class that a new pod is given natively: a default class, or the twin of its class.

What is given must be what the Priority plugin resolves, or it refuses the pod. So the class is a parameter of the
policy: the API server reads parameters from the same cache as its plugin, and evaluates nothing while there is no such
class. A table could be old.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from webhook.native.expressions import FALSE, TRUE, all_of, any_of, if_else, listing, mapping, name_is, negate, quote
from webhook.native.matching import NEW_POD, excluded, twins_of, who_is_given
from webhook.native.objects import CompiledCondition
from webhook.native.record import RECORD, owned
from webhook.native.rewriting import InexpressibleError
from webhook.native.rules import conditions_of
from webhook.native.sink import Inexpressible, Sink
from webhook.native.table import NEVER, PREEMPT, ClassTable
from webhook.policy.model.policies import Policies
from webhook.policy.model.priority import PriorityPolicy

OWN_NAME = "object.spec.?priorityClassName.orValue('')"
OWN_POLICY = "object.spec.?preemptionPolicy.orValue('')"
PARAMETER_POLICY = f"params.?preemptionPolicy.orValue({quote(PREEMPT)})"
MOVES = "variables.moves"
"""The pod gets the class that is the parameter; false in the evaluation without one."""


_TWIN = '\'{"class":"\' + variables.className + \'","from":"\''
MOVED_EARLIER = if_else(f"{RECORD}.startsWith({_TWIN})", f"{RECORD}.substring(size({_TWIN})).split('\"')[0]", "''")
"""The class of whose twin an earlier call made the pod, by its record, if it has that twin still."""


class Giving(NamedTuple):
    """The classes that pods may be given, sorted by name, and what an evaluation for one of them needs.

    `settled` says that the pod's class is final as far as this evaluation can tell, and `moved_from` of which class
    it is the twin.
    """

    classes: list[str]
    rules: list[str]
    variables: list[tuple[str, str]]
    conditions: list[CompiledCondition]
    settled: str
    moved_from: str


def giving(policies: Policies, table: ClassTable | None, sink: Sink) -> Giving:
    """Default classes and twins. A rule that cannot be expressed is noted."""
    rules: list[str] = []
    default, defaults = _default(policies, table, rules, sink)
    twins = twins_of(policies.preemption)
    classes = sorted({*defaults, *twins.values()})
    if not classes:
        return Giving([], rules, [], [], TRUE, quote(""))
    twin = f"{mapping((name, quote(twins[name])) for name in sorted(twins))}[?{OWN_NAME}].orValue('')"
    is_twin = f"{twin} == params.metadata.name" if twins else FALSE
    # A twin takes pods if it has the value of their class, and is `Never` while that is not
    usable = [f"{PARAMETER_POLICY} == {quote(NEVER)}", f"{OWN_POLICY} != {quote(NEVER)}"]
    usable.append("params.value == object.spec.?priority.orValue(0)")
    settled, variables = TRUE, list[tuple[str, str]]()
    by_default = FALSE
    if defaults:
        variables = [("default", default)]
        by_default = "variables.default == params.metadata.name"
        # If a default class is there, what follows from the class that the pod has now is no matter. If it has gone
        # since the table was made, the pod stays in its class, without twin and copies
        there = [name for name in sorted(defaults) if table is not None and name in table]
        settled = f"!(variables.default in {listing(there)})" if there else TRUE
    moves = any_of([by_default, all_of([is_twin, *usable, settled])])
    variables.append(("moves", all_of(["params != null", f"({moves})"])))
    # Most pods get no other class, and a match condition finds it out at the least cost
    none = name_is(OWN_NAME, ["", *(table.global_defaults if table is not None else ())])
    is_default = all_of([none, name_is("params.metadata.name", sorted(defaults))]) if defaults else FALSE
    may_be = CompiledCondition("may-be-given", any_of(["params == null", is_default, is_twin]))
    moved_from = if_else(MOVES, if_else(by_default, quote(""), OWN_NAME), MOVED_EARLIER) if twins else quote("")
    return Giving(
        classes, rules, variables, [may_be], any_of([MOVES, settled]) if settled != TRUE else TRUE, moved_from
    )


def gives(policy: PriorityPolicy) -> str:
    """The policy fills something in for the pod. Raises InexpressibleError."""
    tests = [who_is_given(policy.match, NEW_POD), negate(excluded(policy.exclude, NEW_POD))]
    return all_of([*tests, *(condition.expression for condition in conditions_of(policy))])


def _default(policies: Policies, table: ClassTable | None, rules: list[str], sink: Sink) -> tuple[str, frozenset[str]]:
    """The class for a pod that names none, or the empty string, and all such classes; the first rule decides."""
    cases: list[tuple[str, str]] = []
    for policy in policies.priority:
        rule = next((rule for rule in policy.rules if rule.default_priority_class is not None), None)
        if rule is None:
            continue
        name, rule_id = rule.default_priority_class or "", f"{policy.name}/{rule.name}"
        try:
            when = gives(policy)
        except InexpressibleError as error:
            sink.inexpressible.append(Inexpressible(rule_id, str(error)))
            continue
        if table is None:
            reason = "which class is the global default, that pods without one have by then, is not known"
            sink.inexpressible.append(Inexpressible(rule_id, f"{reason}: give the classes"))
            continue
        rules.append(rule_id)
        cases.append((when, name))
    chosen = quote("")
    for when, name in reversed(cases):
        chosen = if_else(when, quote(name), chosen)
    names = frozenset(name for _, name in cases)
    return if_else(_names_none(table.global_defaults if table is not None else ()), chosen, quote("")), names


def _names_none(global_defaults: Iterable[str]) -> str:
    """A pod names no class if it has none, or if the Priority plugin filled in the global default."""
    filled_in = [f"{RECORD} == ''", f"{OWN_NAME} in {listing(global_defaults)}", owned(["spec"])]
    filled_in.append(negate(owned(["spec", "priorityClassName"])))
    return any_of([f"{OWN_NAME} == ''", all_of(filled_in) if global_defaults else FALSE])
