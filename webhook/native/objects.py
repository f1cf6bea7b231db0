"""The objects that the API server is given, as JSON data: policies of both kinds and their bindings.

Every field that the API server would fill in is written, so that what is stored can be compared with what is wanted,
and `kubectl diff` shows nothing but changes.
"""

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from webhook.kube.objects.meta import LabelSelector
from webhook.native.expressions import all_of, any_of, negate
from webhook.policy.evaluation.request import CLASSES, GROUPS
from webhook.policy.evaluation.rules import BUILTIN
from webhook.registration.entries import EXEMPT

Object = dict[str, Any]

API_VERSION = "admissionregistration.k8s.io/v1"
VALIDATING, MUTATING = "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"
LABEL = "giveway.dev/policy"
"""The label with the name of the policy from which an object is made; `builtin` for what holds without any."""
COMPONENT = {
    "app.kubernetes.io/name": "giveway",
    "app.kubernetes.io/component": "native-policies",
}
"""The labels of every object that is compiled."""
RULES = "giveway.dev/rules"
"""The annotation with the rules that an object holds, as `policy/rule`."""

EXCEPTED = "excepted"
"""Stands beside the enforcements for what whoever uses an exception is told."""
_ACTIONS = {"enforce": ["Deny"], "warn": ["Warn"], "audit": ["Audit"], EXCEPTED: ["Warn"]}
DESCRIPTION = "kubernetes.io/description"
"""Kubernetes' own annotation for what an object is for."""
NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The label with the name of a namespace."""
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
    """A condition of a policy: one that is false decides, else one that fails; only somebody else's `may_fail`."""

    name: str
    expression: str
    may_fail: bool = False

    def as_data(self) -> Object:
        """As a policy has it among its match conditions."""
        if _NAMESPACE in self.expression:
            null = f"reads {_NAMESPACE}, which the API server leaves null there"
            raise ValueError(f"match condition {self.name} {null}")
        return {"name": self.name, "expression": self.expression}


class Validation(NamedTuple):
    """An expression that must be true, and the message if it is not; `words` may make another, unless they fail."""

    rule: str
    expression: str
    message: str
    words: str = ""

    def as_data(self) -> Object:
        """As a ValidatingAdmissionPolicy has it."""
        data = {
            "expression": self.expression,
            "message": " ".join(self.message.split()),
            "reason": "Forbidden",
        }
        return {**data, "messageExpression": self.words} if self.words else data


def object_name(policy: str, what: str, enforcement: str) -> str:
    """`giveway-POLICY-WHAT-ENFORCEMENT`, of one policy: the last two words have no `-`."""
    return _shortened(f"giveway-{policy}", policy, f"-{what}-{enforcement}")


def constraints(
    settings: Settings,
    resources: Sequence[str],
    operations: Iterable[str],
    *,
    labels: Object | None = None,
    object_selector: LabelSelector | None = None,
) -> Object:
    """What the API server looks at by itself: resources, all in namespaces or none, and two selectors.

    PodGroups are meant in every version; an API server takes a rule for what it does not serve. Of
    the namespaces of `labels` (a selector) those are left out that the webhook leaves out: what
    the cluster needs to get back on its feet must not wait for anybody's policy (docs/install.md).
    """
    in_namespaces = CLASSES not in resources
    namespaces: Object = {}
    if in_namespaces:
        left_out = [
            {
                "key": NAMESPACE_NAME,
                "operator": "NotIn",
                "values": sorted({"kube-system", settings.namespace}),
            },
            {"key": EXEMPT, "operator": "DoesNotExist"},
        ]
        labels = labels or {}
        namespaces = {
            **labels,
            "matchExpressions": [*labels.get("matchExpressions", ()), *left_out],
        }
    rule = {
        "apiGroups": ["scheduling.k8s.io" if {CLASSES, GROUPS} & {*resources} else ""],
        "apiVersions": ["*" if GROUPS in resources else "v1"],
        "resources": list(resources),
        "operations": sorted(operations),
        "scope": "Namespaced" if in_namespaces else "Cluster",
    }
    return {
        "matchPolicy": "Equivalent",
        "namespaceSelector": namespaces,
        "objectSelector": filled(msgspec.to_builtins(object_selector)) or {},
        "resourceRules": [rule],
    }


def filled(value: Any) -> Any:
    """Data without what is empty but texts, as labels have them: the API server adds it or leaves it out."""
    if isinstance(value, list | tuple):
        return [filled(item) for item in value]
    if not isinstance(value, dict):
        return value
    parts = {key: filled(part) for key, part in value.items()}
    return {key: part for key, part in parts.items() if part not in ({}, [], None)}


def validating_policy(
    policy: str,
    what: str,
    enforcement: str,
    *,
    constraints: Object,
    conditions: Sequence[CompiledCondition] = (),
    validations: Sequence[Validation],
    variables: Iterable[tuple[str, str]] = (),
) -> list[Object]:
    """A ValidatingAdmissionPolicy with its binding, and with those of the `variables` that it uses.

    The API server binds `namespaceObject` everywhere but in match conditions, where it is null
    (`matchconditions/matcher.go`). So a condition that reads it becomes a part of every validation.
    Then each one that may fail does, too: a false condition still decides before a failing one.
    """
    applies = []
    if any(_NAMESPACE in condition.expression for condition in conditions):
        moved = [row for row in conditions if row.may_fail or _NAMESPACE in row.expression]
        conditions = [row for row in conditions if row not in moved]
        applies = [(APPLIES, all_of(row.expression for row in moved))]
        unless = negate(f"variables.{APPLIES}")
        validations = [row._replace(expression=any_of([unless, row.expression])) for row in validations]
    rows = [validation.as_data() for validation in validations]
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": constraints,
        "matchConditions": [condition.as_data() for condition in conditions],
        "variables": _used([*applies, *variables], repr(rows)),
        "validations": rows,
    }
    whose = "what holds without any policy" if policy == BUILTIN else f"PriorityPolicy {policy}"
    description = f"Judges {what} by {whose} ({enforcement})."
    rules = [validation.rule for validation in validations]
    made = _policy(VALIDATING, policy, what, enforcement, description, rules, spec)
    return [made, _binding(made, {"validationActions": list(_ACTIONS[enforcement])})]


def mutating_policy(
    what: str,
    rules: Iterable[str],
    *,
    description: str,
    constraints: Object,
    conditions: Sequence[CompiledCondition],
    variables: Iterable[tuple[str, str]] = (),
    patch: str,
    classes: Iterable[str] | None = None,
) -> list[Object]:
    """A MutatingAdmissionPolicy with one JSON patch, called again if others change the object after it.

    It has one binding. With `classes`, it is evaluated with `params` null
    by that, and once more by a binding for each of these PriorityClasses,
    with the class as `params`, and not at all while there is no such class.
    """
    spec = {
        "failurePolicy": "Fail",
        "paramKind": {} if classes is None else dict(_PARAMETERS),
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": constraints,
        "matchConditions": [condition.as_data() for condition in conditions],
        "variables": [{"name": name, "expression": expression} for name, expression in variables],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    }
    made = _policy(MUTATING, BUILTIN, what, "mutate", description, rules, spec)
    bindings = [_binding(made, {})]
    for name in classes or ():
        bindings.append(
            _binding(made, {"paramRef": {"name": name, "parameterNotFoundAction": "Allow"}}),
        )
        bindings[-1]["metadata"]["name"] = _shortened(f"{made['metadata']['name']}-{name}", name)
    return [made, *bindings]


def _used(variables: Sequence[tuple[str, str]], by: str) -> list[Object]:
    """The variables that expressions use, by themselves or through others."""
    used: list[Object] = []
    for name, expression in reversed(variables):
        if f"variables.{name}" in by:
            used.insert(0, {"name": name, "expression": expression})
            by += expression
    return used


def _policy(  # noqa: PLR0917 - the fields of an object
    kind: str,
    policy: str,
    what: str,
    enforcement: str,
    description: str,
    rules: Iterable[str],
    spec: Object,
) -> Object:
    """An object with what it is for, and the rules that it holds; `kubectl describe` shows both."""
    labels = dict(COMPONENT)
    if len(policy) <= _LONGEST_LABEL and re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", policy):
        labels[LABEL] = policy
    metadata = {
        "name": object_name(policy, what, enforcement),
        "labels": labels,
        "annotations": {DESCRIPTION: description, RULES: " ".join(dict.fromkeys(rules))},
    }
    spec = {key: value for key, value in spec.items() if value not in ([], {})}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _binding(of: Object, spec: Object) -> Object:
    """What puts a policy into force everywhere."""
    name, labels = of["metadata"]["name"], dict(of["metadata"]["labels"])
    return {
        "apiVersion": API_VERSION,
        "kind": f"{of['kind']}Binding",
        "metadata": {"name": name, "labels": labels},
        "spec": {"policyName": name, **spec},
    }


def _shortened(name: str, of: str, end: str = "") -> str:
    """A name of an object; what is cut off leaves its digest."""
    if len(name) + len(end) <= _LONGEST_NAME:
        return name + end
    end = f"-{sha256(of.encode()).hexdigest()[:8]}{end}"
    return f"{name[: _LONGEST_NAME - len(end)].rstrip('-.')}{end}"
