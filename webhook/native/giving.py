"""The class that a new pod is given natively: a default class, or the twin of its class.

What is given must be what the Priority plugin resolves, or it refuses the pod. So the class is a parameter of the
policy: the API server reads parameters from the same cache as its plugin, and evaluates nothing while there is no such
class. A table could be old.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from webhook.native.expressions import FALSE, TRUE, all_of, any_of, if_else, listing, mapping, name_is, negate, quote
from webhook.native.matching import NEW_POD, excluded, twins_of, who_is_given
from webhook.native.objects import CompiledCondition
from webhook.native.record import RECORD, owned
from webhook.native.rewriting import InexpressibleError
from webhook.native.rules import conditions_of
from webhook.native.sink import Sink
from webhook.native.table import NEVER, PREEMPT, ClassTable
from webhook.policy.model.policies import Policies

OWN_NAME = "object.spec.?priorityClassName.orValue('')"
OWN_POLICY = "object.spec.?preemptionPolicy.orValue('')"
PARAMETER_POLICY = f"params.?preemptionPolicy.orValue({quote(PREEMPT)})"
MOVES = "variables.moves"
"""The pod gets the class that is the parameter; false in the evaluation without one."""

_DEFAULT = "variables.default"
_TWIN = '\'{"class":"\' + variables.className + \'","from":"\''
_MOVED_EARLIER = if_else(f"{RECORD}.startsWith({_TWIN})", f"{RECORD}.substring(size({_TWIN})).split('\"')[0]", "''")
"""The class of whose twin an earlier call made the pod, by its record, if it has that twin still."""


class Giving(NamedTuple):
    """The classes that pods may be given, sorted by name, and what an evaluation for one of them needs.

    `settled` says that the pod's class is final as far as this evaluation can tell, and `moved_from` of which class
    it is the twin.
    """

    classes: list[str]
    rules: list[str]
    variables: list[tuple[str, str]]
    may_be_given: CompiledCondition
    settled: str
    moved_from: str


def giving(policies: Policies, table: ClassTable | None, sink: Sink) -> Giving:
    """Default classes and twins. A rule that cannot be expressed is noted."""
    cases = list(given_by("default_priority_class", policies, table, sink))
    defaults, default = {name for _, name, _ in cases}, quote("")
    global_defaults = table.names(default=True) if table is not None else []
    for _, name, when in reversed(cases):
        default = if_else(when, quote(name), default)
    # A pod names no class if it has none, or if the Priority plugin filled in the global default
    filled_in = [f"{RECORD} == ''", f"{OWN_NAME} in {listing(global_defaults)}", owned(["spec"])]
    filled_in.append(negate(owned(["spec", "priorityClassName"])))
    names_none = any_of([f"{OWN_NAME} == ''", all_of(filled_in) if global_defaults else FALSE])
    # If a default class is there, what follows from the class that the pod has now is no matter. If it has gone
    # since the table was made, the pod stays in its class, without twin and copies
    there = sorted(defaults.intersection(table.names() if table is not None else ()))
    settled = f"!({_DEFAULT} in {listing(there)})" if there else TRUE
    by_default = f"{_DEFAULT} == params.metadata.name" if defaults else FALSE
    # A twin takes pods if it has the value of their class, and is `Never` while that is not
    is_twin = f"{twin_of(policies)} == params.metadata.name" if twins_of(policies.preemption) else FALSE
    usable = [f"{PARAMETER_POLICY} == {quote(NEVER)}", f"{OWN_POLICY} != {quote(NEVER)}"]
    usable.append("params.value == object.spec.?priority.orValue(0)")
    moves = all_of(["params != null", any_of([by_default, all_of([is_twin, *usable, settled])])])
    # Most pods get no other class, and a match condition finds it out at the least cost
    is_default = all_of([name_is(OWN_NAME, ["", *global_defaults]), name_is("params.metadata.name", sorted(defaults))])
    return Giving(
        classes=sorted({*defaults, *twins_of(policies.preemption).values()}),
        rules=[rule_id for rule_id, _, _ in cases],
        variables=[("default", if_else(names_none, default, quote(""))), ("moves", moves)],
        may_be_given=CompiledCondition("may-be-given", any_of(["params == null", is_default, is_twin])),
        settled=any_of([MOVES, settled]),
        moved_from=if_else(MOVES, if_else(by_default, quote(""), OWN_NAME), _MOVED_EARLIER),
    )


def given_by(body: str, policies: Policies, table: ClassTable | None, sink: Sink) -> Iterator[tuple[str, Any, str]]:
    """The rules with this body: id, body, and when the policy fills something in for a pod; others are noted."""
    for policy in policies.priority:
        for rule in policy.rules:
            value = getattr(rule, body)
            if value is None:
                continue
            rule_id = f"{policy.name}/{rule.name}"
            tests = [who_is_given(policy.match, NEW_POD), negate(excluded(policy.exclude, NEW_POD))]
            try:
                when = all_of([*tests, *(condition.expression for condition in conditions_of(policy))])
            except InexpressibleError as error:
                sink.lacks(rule_id, error)
                continue
            if table is None:
                sink.lacks(
                    rule_id,
                    "what a class says, and which class is the global default that pods without one have by then, is"
                    " not known: give the classes",
                )
                continue
            yield rule_id, value, when


def twin_of(policies: Policies) -> str:
    """The twin of the class that the pod names, or the empty string."""
    twins = sorted(twins_of(policies.preemption).items())
    return f"{mapping((name, quote(twin)) for name, twin in twins)}[?{OWN_NAME}].orValue('')" if twins else quote("")
