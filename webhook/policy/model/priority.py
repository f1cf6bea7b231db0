"""PriorityPolicy: who may run and define what. Its rules are in `webhook.policy.model.rules`."""

from typing import Annotated

import msgspec
from msgspec.structs import force_setattr, replace

from webhook.policy.cel.program import VARIABLES, compile_bool
from webhook.policy.model.match import MEND, RIGHT, RequestMatch, check_rights
from webhook.policy.model.rules import Enforcement, PriorityRule, reads_user
from webhook.policy.model.values import Name, expression
from webhook.policy.shapes.findings import Reader, Severity
from webhook.policy.shapes.object_shape import FILLED, REQUIRED, Nodes, Values, mapping
from webhook.policy.shapes.shapes import INSTANT, string
from webhook.policy.shapes.yaml_nodes import SourcePosition

_EVERYBODYS = (
    "the rules also hold for pods that controllers and service accounts make in every namespace, so they would refuse"
    f" the pods of everybody's Deployments and Jobs; {MEND}; or"
    ' "operations: [UPDATE]" if only changes are meant; or, if the pods of controllers are meant as well, add'
    " {kind: Group, name: system:serviceaccounts} to the subjects"
)


@mapping("condition", f"A CEL expression that must be true for the policy to apply, over {', '.join(VARIABLES)}.")
class MatchCondition(msgspec.Struct, frozen=True):
    """A named CEL expression that must hold for the policy to apply."""

    name: Annotated[Name, "The condition's name in messages."]
    expression: Annotated[str, expression(compile_bool, ("pods", "priorityclasses")), "The expression."]
    source: SourcePosition


@mapping("exception")
class PolicyException(msgspec.Struct, frozen=True, kw_only=True):
    """Whom some rules of the policy let in all the same for a while, with a warning that says until when."""

    match: Annotated[RequestMatch, RIGHT, "Who is let in: everything named must hold, as in a right."]
    rules: Annotated[tuple[Name, ...], FILLED, "The rules of this policy that let them in."]
    reason: Annotated[str, string("a reason"), "Why; the author of the request reads it."]
    owner: Annotated[str, string("an owner"), "Who answers for it."]
    until: Annotated[float, INSTANT, "When it ends: an instant, or the last day (UTC)."]
    """Seconds since the epoch."""
    source: SourcePosition

    @staticmethod
    def check(values: Values, nodes: Nodes, reader: Reader) -> None:
        """It is for somebody, and means whom it names."""
        if values.get("match") == RequestMatch():
            text = "this excepts everybody: name who is meant, or turn the rules to warn"
            reader.error(nodes["match"], text)
        elif "match" in values:
            check_rights((values["match"],), nodes["match"], reader)


@mapping("PriorityPolicy spec")
class PriorityPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Who may run and define what: when the policy applies, and its rules."""

    name: str = ""
    """Stands in the document's metadata."""
    source: SourcePosition
    enforcement: Annotated[Enforcement, "What a violated rule does."] = Enforcement.ENFORCE
    match: Annotated[RequestMatch, "Which requests the policy is about; all if absent."] = RequestMatch()
    exclude: Annotated[RequestMatch | None, "Which of those it is not about after all; exclude wins over match."] = None
    conditions: Annotated[tuple[MatchCondition, ...], "CEL expressions that must all be true besides."] = ()
    rules: Annotated[tuple[PriorityRule, ...], FILLED, REQUIRED, "The rules."] = ()
    exceptions: Annotated[tuple[PolicyException, ...], "Whom some of the rules let in all the same for a while."] = ()

    @staticmethod
    def check(values: Values, nodes: Nodes, reader: Reader) -> None:
        """Names are there once, exceptions are from rules that refuse, and `match` is for somebody.

        Rules and conditions share the names by which `policy/name` is found in
        messages. The rules are made here, where their enforcement is known.
        """
        inherited = {"enforcement": values.get("enforcement", Enforcement.ENFORCE)}
        rules = tuple(PriorityRule(**{**inherited, **rule}) for rule in values.get("rules", ()))
        seen: dict[str, int] = {}
        for row in (*rules, *values.get("conditions", ())):
            if row.name in seen:
                text = f'name "{row.name}" is there twice in this policy; the other one is on line {seen[row.name]}'
                reader.at(Severity.ERROR, row.source, text)
            seen.setdefault(row.name, row.source.line)
        _check_requesters(values.get("match") or RequestMatch(), rules, nodes, reader)
        if "rules" not in values:
            return
        values["rules"] = rules
        refusing = {rule.name: rule.declaration.refuses for rule in rules}
        for exception in values.get("exceptions", ()):
            for name in exception.rules:
                if name not in refusing:
                    near = reader.nearest(name, refusing)
                    text = f'the exception names a rule "{name}" that this policy does not have{near}'
                    reader.at(Severity.ERROR, exception.source, text)
                elif not refusing[name]:
                    text = f'rule "{name}" refuses nothing, so there is nothing to except from'
                    reader.at(Severity.ERROR, exception.source, f'{text}; use "exclude"')

    def __post_init__(self) -> None:
        """Its rules have the policy's name."""
        rules = tuple(replace(rule, policy=self.name) for rule in self.rules)
        force_setattr(self, "rules", rules)

    @property
    def matches(self) -> list[RequestMatch]:
        """`match`, `exclude` and those of its exceptions."""
        excluded = [] if self.exclude is None else [self.exclude]
        return [self.match, *excluded, *(row.match for row in self.exceptions)]

    @property
    def asks_who(self) -> bool:
        """Whether it makes a difference to pods who asks: by `subjects` or an expression."""
        if any(match.subjects is not None for match in self.matches):
            return True
        if any(reads_user(condition.expression) for condition in self.conditions):
            return True
        return any(rule.declaration.asks_who for rule in self.rules)


def _check_requesters(match: RequestMatch, rules: tuple[PriorityRule, ...], nodes: Nodes, reader: Reader) -> None:
    """Refuse a `match` by subjects without a controller over rules that restrict new pods.

    Such rules hold for the pods of controllers all the same, and refuse those of everybody's
    workloads, so the policy must say that it means it (docs/policies.md, "Who asks").
    """
    if match.subjects is None or match.by_namespace:
        return
    if match.operations is not None and "CREATE" not in match.operations:
        return
    if any(row.covers_controllers for row in match.subjects):
        return
    enforced = [rule for rule in rules if rule.enforcement is Enforcement.ENFORCE]
    declared = [rule.declaration for rule in rules]
    restricting = [row for row in declared if "pods" in row.about and "CREATE" in row.operations]
    if restricting and any(rule.declaration.refuses for rule in enforced):
        reader.error(nodes["match"], _EVERYBODYS)
