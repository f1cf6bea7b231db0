"""The objects that the API server is given, as JSON data: policies of both kinds and their bindings.

Every field that the API server would fill in is written, so that what is stored can be compared with what is wanted,
and `kubectl diff` shows nothing but changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from webhook.kube.objects.meta import LabelSelector
from webhook.native.expressions import Cel, all_of, any_of, concatenation, negate
from webhook.registration.entries import EXEMPT

Object = dict[str, Any]

API_VERSION = "admissionregistration.k8s.io/v1"
VALIDATING, MUTATING = "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"
LABEL = "giveway.dev/policy"
"""The label with the name of the policy from which an object is made; `builtin` for what holds without any."""
COMPONENT = {"app.kubernetes.io/name": "giveway", "app.kubernetes.io/component": "native-policies"}
"""The labels of every object that is compiled."""
RULES = "giveway.dev/rules"
"""The annotation with the rules that an object holds, as `policy/rule`."""

EXCEPTED = "excepted"
"""Stands beside the enforcements for what whoever uses an exception is told."""
_ACTIONS = {"enforce": ["Deny"], "warn": ["Warn"], "audit": ["Audit"], EXCEPTED: ["Warn"]}
DESCRIPTION = "kubernetes.io/description"
"""Kubernetes' own annotation for what an object is for."""
_NAME = "kubernetes.io/metadata.name"
_NAMESPACE = "namespaceObject"
APPLIES = "applies"
"""The variable with the conditions of a policy that no match condition can have."""
_LONGEST_LABEL, _LONGEST_NAME = 63, 253
_PARAMETERS = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for all objects: giveway's own namespace, and the user name of its reconciler.

    `mutates` is false for clusters without MutatingAdmissionPolicies: then what only they can do is left out, and a pod
    that would stay unmarked and unserved is refused. `kept` says that somebody compiles again on time, so that what
    ends may stand in the objects without a clock.
    """

    namespace: str
    reconciler: str
    mutates: bool = True
    kept: bool = False


class CompiledCondition(msgspec.Struct, frozen=True):
    """A condition of a policy: one that is false decides, else one that fails.

    `may_fail` says that the expression is somebody else's. No other one fails on any object.
    """

    name: str
    expression: str
    may_fail: bool = False

    def as_data(self) -> Object:
        """As a policy has it among its match conditions."""
        if _NAMESPACE in self.expression:
            raise ValueError(f"match condition {self.name} reads {_NAMESPACE}, which the API server leaves null there")
        return {"name": self.name, "expression": self.expression}


class Validation(msgspec.Struct, frozen=True, kw_only=True):
    """An expression that must be true, and the text for whoever violates it, in literal parts and Cel."""

    rule: str
    expression: str
    text: tuple[str, ...]

    def as_data(self) -> Object:
        """As a ValidatingAdmissionPolicy has it; a text without Cel needs no messageExpression."""
        literal = "".join(part.otherwise if isinstance(part, Cel) else part for part in self.text)
        said = re.sub("…+", "…", " ".join(literal.split()))
        data: Object = {"expression": self.expression, "message": said, "reason": "Forbidden"}
        if any(isinstance(part, Cel) for part in self.text):
            data["messageExpression"] = concatenation(self.text)
        return data


def object_name(policy: str, what: str, enforcement: str) -> str:
    """`giveway-POLICY-WHAT-ENFORCEMENT`; no two policies share one, because the last two words have no `-`."""
    return _shortened(f"giveway-{policy}", policy, f"-{what}-{enforcement}")


def resource_rule(resources: Sequence[str], operations: Iterable[str], group: str = "") -> Object:
    """Resources of one group, all of which lie in namespaces or none does."""
    return {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "resources": list(resources),
        "operations": sorted(operations),
        "scope": "Cluster" if group else "Namespaced",
    }


def classes_rule(operations: Iterable[str]) -> Object:
    """PriorityClasses."""
    return resource_rule(["priorityclasses"], operations, "scheduling.k8s.io")


def groups_rule(operations: Iterable[str]) -> Object:
    """PodGroups in every version; an API server takes a rule for what it does not serve."""
    rule = resource_rule(["podgroups"], operations, "scheduling.k8s.io")
    return {**rule, "apiVersions": ["*"], "scope": "Namespaced"}


def namespaces_reached(settings: Settings, labels: Object | None = None) -> Object:
    """The namespaces of `labels` (a selector) without those that are left out, as the webhook leaves them out.

    What the cluster needs to get back on its feet must not wait for anybody's policy (docs/install.md).
    """
    own = sorted({"kube-system", settings.namespace})
    selector: Object = {"matchLabels": labels["matchLabels"]} if labels and labels.get("matchLabels") else {}
    selector["matchExpressions"] = [
        *((labels or {}).get("matchExpressions") or ()),
        {"key": _NAME, "operator": "NotIn", "values": own},
        {"key": EXEMPT, "operator": "DoesNotExist"},
    ]
    return selector


def selector_data(selector: LabelSelector | None) -> Object:
    """A label selector as JSON data; everything is selected without one."""
    data: Object = {}
    if selector is not None and selector.match_labels:
        data["matchLabels"] = dict(selector.match_labels)
    if selector is not None and selector.match_expressions:
        data["matchExpressions"] = [
            {"key": row.key, "operator": row.operator, **({"values": list(row.values)} if row.values else {})}
            for row in selector.match_expressions
        ]
    return data


def validating_policy(
    name: str,
    policy: str,
    *,
    description: str,
    constraints: Object,
    conditions: Sequence[CompiledCondition] = (),
    validations: Sequence[Validation],
    variables: Sequence[tuple[str, str]] = (),
) -> Object:
    """A ValidatingAdmissionPolicy.

    The API server binds `namespaceObject` everywhere but in match conditions, where it is null
    (`matchconditions/matcher.go`). So a condition that reads it becomes a part of every validation. Then each one that
    may fail does, too: a false condition still decides before a failing one.
    """
    spec: Object = {"failurePolicy": "Fail", "matchConstraints": _constraints(constraints)}
    if any(_NAMESPACE in condition.expression for condition in conditions):
        moved = [condition for condition in conditions if condition.may_fail or _NAMESPACE in condition.expression]
        conditions = [condition for condition in conditions if condition not in moved]
        variables = [(APPLIES, all_of(condition.expression for condition in moved)), *variables]
        unless = negate(f"variables.{APPLIES}")
        validations = [
            msgspec.structs.replace(validation, expression=any_of([unless, validation.expression]))
            for validation in validations
        ]
    if conditions:
        spec["matchConditions"] = [condition.as_data() for condition in conditions]
    if variables:
        spec["variables"] = [{"name": variable, "expression": expression} for variable, expression in variables]
    spec["validations"] = [validation.as_data() for validation in validations]
    made = _object(VALIDATING, name, policy, spec)
    return _described(made, description, [validation.rule for validation in validations])


def mutating_policy(
    name: str,
    rules: Iterable[str],
    *,
    description: str,
    constraints: Object,
    conditions: Sequence[CompiledCondition],
    variables: Sequence[tuple[str, str]] = (),
    patch: str,
    parameters: bool = False,
) -> Object:
    """A MutatingAdmissionPolicy with one JSON patch, called again if somebody else changes the object after it.

    With `parameters` it is evaluated once for each binding, with the PriorityClass that the binding names as `params`,
    or null.
    """
    spec: Object = {
        "failurePolicy": "Fail",
        **({"paramKind": dict(_PARAMETERS)} if parameters else {}),
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": _constraints(constraints),
        "matchConditions": [condition.as_data() for condition in conditions],
        "variables": [{"name": variable, "expression": expression} for variable, expression in variables],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    }
    made = _object(MUTATING, name, "builtin", {key: value for key, value in spec.items() if value != []})
    return _described(made, description, rules)


def binding(of: Object, enforcement: str = "") -> Object:
    """What puts a policy into force everywhere; `enforcement` is empty for one that mutates."""
    meta = of["metadata"]
    made = _object(f"{of['kind']}Binding", meta["name"], "", {"policyName": meta["name"]})
    made["metadata"] = {"name": meta["name"], "labels": dict(meta["labels"])}
    if enforcement:
        made["spec"]["validationActions"] = list(_ACTIONS[enforcement])
    return made


def binding_for_class(of: Object, name: str) -> Object:
    """What has a policy evaluated with a PriorityClass as parameter, and not at all while there is no such class."""
    made = binding(of)
    made["metadata"]["name"] = _shortened(f"{of['metadata']['name']}-{name}", name)
    made["spec"]["paramRef"] = {"name": name, "parameterNotFoundAction": "Allow"}
    return made


def _shortened(name: str, of: str, end: str = "") -> str:
    """A name of an object; what is cut off leaves its digest."""
    if len(name) + len(end) <= _LONGEST_NAME:
        return name + end
    end = f"-{sha256(of.encode()).hexdigest()[:8]}{end}"
    return f"{name[: _LONGEST_NAME - len(end)].rstrip('-.')}{end}"


def _constraints(given: Object) -> Object:
    return {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, **given}


def _described(made: Object, description: str, rules: Iterable[str]) -> Object:
    """The object with what it is for, and the rules that it holds; `kubectl describe` shows both."""
    named = " ".join(dict.fromkeys(rules))
    made["metadata"]["annotations"] = {DESCRIPTION: description, RULES: named}
    return made


def _object(kind: str, name: str, policy: str, spec: Object) -> Object:
    labels = dict(COMPONENT)
    if len(policy) <= _LONGEST_LABEL and re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", policy):
        labels[LABEL] = policy
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, "labels": labels}, "spec": spec}
