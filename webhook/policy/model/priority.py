"""PriorityPolicy: who may run and define what. Its rules are in `webhook.policy.model.rules`."""

from __future__ import annotations

from typing import Annotated

from webhook.policy.cel.program import VARIABLES, compile_bool
from webhook.policy.model.match import MEND, RIGHT, RequestMatch, check_rights, reads_user
from webhook.policy.model.rules import ENFORCEMENT, Enforcement, PriorityRule
from webhook.policy.model.values import NAME, Expression, warn_of_unknown_fields
from webhook.policy.shapes.findings import Reader
from webhook.policy.shapes.object_shape import Checked, Field, Nodes, Values, mapping, shape_of
from webhook.policy.shapes.shapes import Instant, ListOf, Text
from webhook.policy.shapes.yaml_nodes import SourcePosition, YamlNode


@mapping("condition", f"A CEL expression that must be true for the policy to apply, over {', '.join(VARIABLES)}.")
class MatchCondition(Checked, frozen=True):
    """A named CEL expression that must hold for the policy to apply."""

    name: Annotated[str, Field("The condition's name in messages.", NAME)]
    expression: Annotated[str, Field("The expression.", Expression(compile_bool))]
    source: SourcePosition

    @staticmethod
    def check(values: Values, nodes: Nodes, reader: Reader) -> None:
        """It reads fields that there are."""
        if "expression" in values:
            about = ("pods", "priorityclasses")
            warn_of_unknown_fields(compile_bool(values["expression"]), nodes["expression"], reader, about)


MatchConditions = tuple[MatchCondition, ...]


@mapping("exception")
class PolicyException(Checked, frozen=True, kw_only=True):
    """Whom some rules of the policy let in all the same for a while, with a warning that says until when."""

    match: Annotated[RequestMatch, Field("Who is let in: everything named must hold, as in a right.", RIGHT)]
    rules: Annotated[tuple[str, ...], Field("The rules of this policy that let them in.", ListOf(NAME, least=1))]
    reason: Annotated[str, Field("Why; the author of the request reads it.", Text("a reason"))]
    owner: Annotated[str, Field("Who answers for it.", Text("an owner"))]
    until: Annotated[float, Field("When it ends: an instant, or the last day (UTC).", Instant())]
    """Seconds since the epoch."""
    source: SourcePosition

    @staticmethod
    def check(values: Values, nodes: Nodes, reader: Reader) -> None:
        """It is for somebody, and means whom it names."""
        if values.get("match") == RequestMatch():
            reader.error(nodes["match"], "this excepts everybody: name who is meant, or turn the rules to warn")
        elif "match" in values:
            check_rights((values["match"],), nodes["match"], reader, at_create=True)


def _policy(values: Values, source: SourcePosition) -> PriorityPolicy:
    enforcement = values.get("enforcement", Enforcement.ENFORCE)
    rules = tuple(PriorityRule(**{"enforcement": enforcement, **rule}) for rule in values.pop("rules"))
    return PriorityPolicy(name="", source=source, rules=rules, **values)


@mapping("PriorityPolicy spec", build=_policy)
class PriorityPolicy(Checked, frozen=True, kw_only=True):
    """Who may run and define what: when the policy applies, and its rules."""

    name: str
    source: SourcePosition
    enforcement: Annotated[Enforcement, Field("What a violated rule does.", ENFORCEMENT)] = Enforcement.ENFORCE
    match: Annotated[RequestMatch, Field("Which requests the policy is about; all if absent.")] = RequestMatch()
    exclude: Annotated[
        RequestMatch | None, Field("Which of those it is not about after all; exclude wins over match.")
    ] = None
    conditions: Annotated[MatchConditions, Field("CEL expressions that must all be true besides.")] = ()
    rules: Annotated[
        tuple[PriorityRule, ...], Field("The rules.", ListOf(shape_of(PriorityRule), least=1), required=True)
    ] = ()
    exceptions: Annotated[
        tuple[PolicyException, ...], Field("Whom some of the rules let in all the same for a while.")
    ] = ()

    @staticmethod
    def check(values: Values, nodes: Nodes, reader: Reader) -> None:
        """Names are there once, an exception is from rules that refuse, and subjects mean whom they name.

        Rules and conditions share the names by which `policy/name` is found in messages.
        """
        rules, seen = values.get("rules", ()), dict[str, int]()
        named = [(rule["name"], rule["source"]) for rule in rules]
        named += [(condition.name, condition.source) for condition in values.get("conditions", ())]
        for name, source in named:
            if name in seen:
                text = f'name "{name}" is there twice in this policy; the other one is on line {seen[name]}'
                reader.error(YamlNode(source.line, source.column, 1), text)
            seen.setdefault(name, source.line)
        _check_requesters(values, nodes, reader)
        refusing = {
            rule["name"]: PriorityRule(**{"enforcement": Enforcement.ENFORCE, **rule}).refuses for rule in rules
        }
        for exception in values.get("exceptions", ()) if "rules" in values else ():
            node = YamlNode(exception.source.line, exception.source.column, 1)
            for name in exception.rules:
                if name not in refusing:
                    near = reader.nearest(name, refusing)
                    reader.error(node, f'the exception names a rule "{name}" that this policy does not have{near}')
                elif not refusing[name]:
                    text = f'rule "{name}" refuses nothing, so there is nothing to except from; use "exclude"'
                    reader.error(node, text)

    @property
    def asks_who(self) -> bool:
        """Whether who asks makes a difference to what the policy says of a pod: by `subjects` or by an expression."""
        matches = [self.match, self.exclude or RequestMatch(), *(exception.match for exception in self.exceptions)]
        return (
            any(match.subjects is not None for match in matches)
            or any(reads_user(condition.expression) for condition in self.conditions)
            or any(rule.declaration.asks_who for rule in self.rules)
        )


def _check_requesters(values: Values, nodes: Nodes, reader: Reader) -> None:
    """Point out a policy that treats the author of a workload and the controller that makes its pods differently.

    docs/policies.md, "Who asks".
    """
    match, exclude = values.get("match") or RequestMatch(), values.get("exclude") or RequestMatch()
    expressions = [(condition.expression, condition.source) for condition in values.get("conditions", ())]
    about_new_pods = False
    validates = False
    for rule in values.get("rules", ()):
        if "validate" in rule and "pods" in rule["validate"].resources:
            about_new_pods = validates = True
            expressions.append((rule["validate"].expression, rule["source"]))
        elif "validate" not in rule:
            body = rule.get("protect_annotations")
            about_new_pods |= body is None or ("CREATE" in body.operations and "pods" in body.resources)
    if not about_new_pods:
        return
    if "CREATE" not in (match.operations or ("CREATE",)):
        if match.subjects is not None and validates:
            reader.warn(
                nodes["match"],
                "the rules also hold for changes that service accounts make, because they may make them for someone"
                " else; leave the subjects out, or let the expression pass what controllers change",
            )
        return
    if match.subjects is not None and not any(subject.covers_controllers for subject in match.subjects):
        _check_subjects(values, match, nodes["match"], reader)
    if exclude.subjects is not None and not exclude.by_namespace:
        reader.warn(
            nodes["exclude"],
            "workloads of these subjects are let in and their pods may be refused, because controllers make the pods"
            f" and are excluded by namespace only; {MEND}",
        )
    for expression, source in expressions:
        if reads_user(expression):
            reader.warn(
                YamlNode(source.line, source.column, 1),
                "request.userInfo is a controller when it makes the pods of a workload, so the author is judged in one"
                " way and the pods in another; read namespaceObject instead, or match operations [UPDATE]",
            )


def _check_subjects(values: Values, match: RequestMatch, node: YamlNode, reader: Reader) -> None:
    """A `match` by subjects that name no controller: what restricts holds for the pods of controllers all the same.

    That refuses the pods of everybody's workloads, so the policy must say that it means it.
    """
    policy = values.get("enforcement", Enforcement.ENFORCE)
    kinds = [PriorityRule(**{"enforcement": policy, **rule}) for rule in values.get("rules", ())]
    refusing = [rule for rule in kinds if rule.refuses and rule.enforcement is Enforcement.ENFORCE]
    what = "the rules also hold for pods that controllers and service accounts make in"
    if match.by_namespace:
        reader.warn(
            node,
            f"{what} these namespaces, whoever the author of the workload is: workloads of others are let in and their"
            " pods may be refused; leave the subjects out",
        )
    elif not any(rule.refuses for rule in kinds):
        reader.warn(node, f"pods that controllers make for these subjects get nothing by this policy; {MEND}")
    elif not refusing:
        reader.warn(
            node, f"{what} every namespace, whoever the author of the workload is, and that is an error if they enforce"
        )
    else:
        reader.error(
            node,
            f"{what} every namespace, so they would refuse the pods of everybody's Deployments and Jobs; {MEND}; or"
            ' "operations: [UPDATE]" if only changes are meant; or, if the pods of controllers are meant as well, add'
            " {kind: Group, name: system:serviceaccounts} to the subjects",
        )
