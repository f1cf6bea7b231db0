"""What an API server makes of admission policies: policies and bindings over one request, as a pure function.

It follows `k8s.io/apiserver/pkg/admission/plugin/policy` and `plugin/cel` of Kubernetes 1.36: the same variables, the
same order, the same rules for expressions (their type must be known to be bool or string). What the CEL library lacks
is given here: patches are maps (`JSONPatch{…}`), and `jsonpatch.escapeKey` is a function. It does not count costs.
"""

import copy
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec
from cel_expr_python import cel
from cel_expr_python.ext import ext_optional, ext_strings

from webhook.kube.json_patch import apply_json_patch
from webhook.kube.objects.meta import LabelSelector
from webhook.kube.selectors import label_matcher

Json = dict[str, Any]
_PATCH = {"op": "op", "path": "path", "value": "value"}
_KNOWN = ("object", "oldObject", "request", "namespaceObject")
_GVK, _GVR = dict.fromkeys(("group", "version", "kind")), dict.fromkeys(("group", "version", "resource"))
_REQUEST: Json = {
    "kind": _GVK,
    "resource": _GVR,
    "subResource": None,
    "requestKind": _GVK,
    "requestResource": _GVR,
    "requestSubResource": None,
    "name": None,
    "namespace": None,
    "operation": None,
    "userInfo": dict.fromkeys(("username", "uid", "groups", "extra")),
    "dryRun": None,
    "options": None,
}
_METADATA = (
    "name generateName namespace labels annotations UID creationTimestamp deletionGracePeriodSeconds deletionTimestamp"
    " generation resourceVersion finalizers"
)
_DECLARED: Json = {
    "request": _REQUEST,
    "namespaceObject": {
        "metadata": dict.fromkeys(_METADATA.split()),
        "spec": {"finalizers": None},
        "status": dict.fromkeys(("conditions", "phase")),
    },
}
"""The fields that expressions may select (`BuildRequestType`, `BuildNamespaceType`); objects have any field."""


class Environment:
    """The expressions of one policy. A variable may use those before it, and has the type of its expression."""

    def __init__(self, variables: tuple[tuple[str, str], ...], *, parameters: bool) -> None:
        self._parameters = parameters
        self.expressions = dict(variables)
        self._types: dict[str, Any] = {}
        self._compiled: dict[tuple[str, str], Any] = {}
        self._environments: dict[bool, Any] = {}
        for name, expression in variables:
            self._types[f"variables.{name}"] = self.compiled(expression, "any").return_type()
            self._environments, self._compiled = {}, {}

    def compiled(self, expression: str, wanted: str) -> Any:
        """An expression as the API server takes it; `wanted` is `bool`, `string`, `patch` or `any`."""
        if (expression, wanted) not in self._compiled:
            patches = wanted == "patch"
            if patches not in self._environments:
                self._environments[patches] = _environment(self._types, patches=patches, parameters=self._parameters)
            _only_declared(expression)
            text = re.sub(r"\bJSONPatch\{", "{", expression) if patches else expression
            found = self._environments[patches].compile(text)
            if wanted in ("bool", "string"):
                assert found.return_type() == getattr(cel.Type, wanted.upper()), (
                    expression,
                    found.return_type().name(),
                )
            self._compiled[expression, wanted] = found
        return self._compiled[expression, wanted]


@lru_cache(1024)
def environment(variables: tuple[tuple[str, str], ...], parameters: bool) -> Environment:
    return Environment(variables, parameters=parameters)


def _environment(types: dict[str, Any], *, patches: bool, parameters: bool) -> Any:
    escaped = lambda text: text.replace("~", "~0").replace("/", "~1")  # noqa: E731 - as short as what it stands for
    escape = cel.Overload("escape", cel.Type.STRING, [cel.Type.STRING], False, escaped)
    return cel.NewEnv(
        variables=dict.fromkeys((*_KNOWN, *(("params",) if parameters else ())), cel.Type.DYN)
        | types
        | (dict.fromkeys(_PATCH, cel.Type.STRING) if patches else {}),
        extensions=[ext_strings.ExtStrings(), ext_optional.ExtOptional()],
        functions=[cel.FunctionDecl("jsonpatch.escapeKey", [escape])] if patches else [],
    )


def _only_declared(expression: str) -> None:
    """No expression selects a field that the API server's type checker does not know."""
    for found in re.finditer(
        r"(?<![\w.])(request|namespaceObject)((?:\.\??\w+\b(?!\())+)", _LITERALS.sub("''", expression)
    ):
        known = _DECLARED[found[1]]
        for field_ in found[2].replace("?", "").split(".")[1:]:
            if known is None:
                break
            assert field_ in known, f"undefined field {field_!r} of {found[1]} in {expression}"
            known = known[field_]


class FailedError(Exception):
    """An expression that failed."""


@dataclass
class Decision:
    """What one validation said: the policy's name, what is done about it, and the message."""

    policy: str
    actions: list[str]
    message: str
    error: bool = False


@dataclass
class Outcome:
    """What became of a request."""

    object: Json
    decisions: list[Decision] = field(default_factory=list)
    mutated_by: list[str] = field(default_factory=list)

    def messages(self, action: str) -> list[str]:
        """The messages under one action, errors left out."""
        return [one.message for one in self.decisions if action in one.actions and not one.error]

    @property
    def allowed(self) -> bool:
        return not any("Deny" in one.actions for one in self.decisions)


def clean(value: Any) -> Any:
    """An object as the API server has it: nothing null, no empty labels or annotations."""
    if isinstance(value, dict):
        found = {key: clean(part) for key, part in value.items() if part is not None}
        return {key: part for key, part in found.items() if part or key not in ("labels", "annotations")}
    return [clean(one) for one in value] if isinstance(value, list) else value


def managed_fields(sent: Json) -> list[Json]:
    """What the API server notes of who set what, before anybody mutates a new object (`FieldManager.Update`).

    What the client says of other managers stays; what it sets is its own.
    """

    def keys(part: Any) -> Json:
        if not isinstance(part, dict):
            return {}
        return {f"f:{key}": keys(value) for key, value in part.items()}

    metadata = {key: value for key, value in sent.get("metadata", {}).items() if key not in _STRIPPED}
    own = keys({**sent, "metadata": metadata})
    own = {key: value for key, value in own.items() if key not in ("f:kind", "f:apiVersion")}
    claimed = [one for one in sent.get("metadata", {}).get("managedFields", ()) if one.get("manager") != "client"]
    return [*claimed, {"manager": "client", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": own}]


_STRIPPED = ("name", "namespace", "creationTimestamp", "uid", "generation", "managedFields", "resourceVersion")


def mutate(
    objects: list[Json],
    request: Json,
    namespaces: dict[str, Json],
    classes: dict[str, Any] | None = None,
    *,
    backwards: bool = False,
) -> Outcome:
    """Call the MutatingAdmissionPolicies, once for each binding; nobody promises an order.

    `classes` are those that are there now, for bindings that name one as their parameter.
    """
    outcome = Outcome(clean(request.get("object") or {}))
    for policy, binding in sorted(_bound(objects, "MutatingAdmissionPolicy"), key=_name, reverse=backwards):
        found, params = _parameter(policy, binding, classes or {})
        if not found:
            continue
        inputs = _Inputs(policy, {**request, "object": outcome.object}, namespaces, params)
        if not inputs.reached():
            continue
        try:
            if not inputs.conditions_hold():
                continue
            for mutation in policy["spec"]["mutations"]:
                patch = inputs.value(mutation["jsonPatch"]["expression"], "patch")
                if patch:
                    outcome.mutated_by.append(policy["metadata"]["name"])
                outcome.object = clean(apply_json_patch(outcome.object, patch))
        except FailedError as failed:
            outcome.decisions.append(Decision(policy["metadata"]["name"], ["Deny"], str(failed), error=True))
    return outcome


def validate(objects: list[Json], request: Json, namespaces: dict[str, Json]) -> Outcome:
    """Call the ValidatingAdmissionPolicies."""
    now = clean(request.get("object"))
    outcome = Outcome(now or {})
    for policy, binding in _bound(objects, "ValidatingAdmissionPolicy"):
        inputs = _Inputs(policy, {**request, "object": now}, namespaces)
        if not inputs.reached():
            continue
        name, actions = policy["metadata"]["name"], binding["spec"]["validationActions"]
        try:
            if not inputs.conditions_hold():
                continue
        except FailedError as failed:
            outcome.decisions.append(Decision(name, actions, str(failed), error=True))
            continue
        for validation in policy["spec"]["validations"]:
            try:
                if inputs.value(validation["expression"], "bool"):
                    continue
                outcome.decisions.append(Decision(name, actions, _message(inputs, validation)))
            except FailedError as failed:
                outcome.decisions.append(Decision(name, actions, str(failed), error=True))
    return outcome


def _message(inputs: "_Inputs", validation: Json) -> str:
    message = ""
    if "messageExpression" in validation:
        try:
            message = inputs.value(validation["messageExpression"], "string").strip()
        except FailedError:
            message = ""
    if not message or "\n" in message or len(message.encode()) > 5 * 1024:
        message = validation["message"]
    assert "\n" not in validation["message"]
    return message


def _bound(objects: list[Json], kind: str) -> list[tuple[Json, Json]]:
    """Every policy with its binding; one without a binding does nothing."""
    bindings = [one for one in objects if one["kind"] == f"{kind}Binding"]
    policies = sorted((one for one in objects if one["kind"] == kind), key=lambda one: one["metadata"]["name"])
    return [
        (policy, binding)
        for policy in policies
        for binding in bindings
        if binding["spec"]["policyName"] == policy["metadata"]["name"]
    ]


def _name(bound: tuple[Json, Json]) -> str:
    return str(bound[1]["metadata"]["name"])


def _parameter(policy: Json, binding: Json, classes: dict[str, Any]) -> tuple[bool, Json | None]:
    """Whether there is what a binding names, and what; nothing if it names nothing (`CollectParams`)."""
    reference = binding["spec"].get("paramRef")
    if reference is None:
        return True, None
    assert policy["spec"]["paramKind"] == {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    assert reference["parameterNotFoundAction"] == "Allow"
    found = classes.get(reference["name"])
    if found is None:
        return False, None
    filled_in = {"value": found.value, "preemptionPolicy": found.preemption_policy or "PreemptLowerPriority"}
    return True, clean(msgspec.to_builtins(found) | filled_in)


class _Inputs:
    """One policy about one request."""

    def __init__(self, policy: Json, request: Json, namespaces: dict[str, Json], params: Json | None = None) -> None:
        self._spec = policy["spec"]
        self._request = request
        namespace = namespaces.get(request.get("namespace", ""))
        asked = {key: value for key, value in request.items() if key in _REQUEST}
        self._data: Json = {
            "object": request["object"],
            "oldObject": clean(request.get("oldObject")),
            "request": {key: value for key, value in clean(asked).items() if value not in ("", [])},
            "namespaceObject": clean(_with_name(namespace)) if namespace else None,
        }
        if "paramKind" in self._spec:
            self._data["params"] = params
        self._variables: dict[str, Any] = {}
        self._environment = environment(
            tuple((row["name"], row["expression"]) for row in self._spec.get("variables", ())),
            "paramKind" in self._spec,
        )

    def reached(self) -> bool:
        """Whether the matchConstraints hold."""
        constraints, request = self._spec["matchConstraints"], self._request
        resource = request["resource"]
        name = "/".join(filter(None, (resource["resource"], request.get("subResource", ""))))
        if not any(
            resource["group"] in rule["apiGroups"]
            and name in rule["resources"]
            and request["operation"] in rule["operations"]
            for rule in constraints["resourceRules"]
        ):
            return False
        namespace = self._data["namespaceObject"]
        if namespace is not None and not _selects(constraints["namespaceSelector"], namespace):
            return False
        both = (self._data["object"], self._data["oldObject"])
        return any(_selects(constraints["objectSelector"], one) for one in both if one)

    def conditions_hold(self) -> bool:
        """A condition that is false decides, else one that fails; `namespaceObject` is null in them."""
        failed = None
        for row in self._spec.get("matchConditions", ()):
            assert "variables." not in row["expression"], "match conditions come before variables"
            try:
                if not self.value(row["expression"], "bool", {"namespaceObject": None}):
                    return False
            except FailedError as error:
                failed = error
        if failed:
            raise failed
        return True

    def value(self, expression: str, wanted: str, instead: Json | None = None) -> Any:
        """The value of an expression, with the variables that it uses. Raises FailedError."""
        used = {f"variables.{name}": self._variable(name) for name in _used(expression)}
        data = self._data | used | (_PATCH if wanted == "patch" else {}) | (instead or {})
        try:
            found = self._environment.compiled(expression, wanted).eval(data=data)
        except RuntimeError as error:
            raise FailedError(f"{expression}: {error}") from error
        if found.type() == cel.Type.ERROR:
            raise FailedError(f"{expression}: {found.value()}")
        return found.plain_value()

    def _variable(self, name: str) -> Any:
        if name not in self._variables:
            self._variables[name] = self.value(self._environment.expressions[name], "any")
        return self._variables[name]


_LITERALS = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)


@lru_cache(8192)
def _used(expression: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(re.findall(r"\bvariables\.(\w+)", _LITERALS.sub("''", expression))))


def _with_name(namespace: Json) -> Json:
    """The label that the API server gives every namespace."""
    found = copy.deepcopy(namespace)
    found["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = found["metadata"]["name"]
    return found


def _selects(selector: Json, obj: Json) -> bool:
    wanted = msgspec.convert(selector, LabelSelector)
    return label_matcher(wanted)((obj.get("metadata") or {}).get("labels") or {})


def priority_plugin(request: Json, classes: dict[str, Any]) -> str:
    """Fill in a new pod as the in-tree plugin does; why it refuses, or nothing (docs/kubernetes-behaviour.md K1)."""
    spec = request["object"].setdefault("spec", {})
    name = spec.get("priorityClassName") or ""
    if not name:
        default = min(
            (one for one in classes.values() if one.global_default),
            key=lambda one: (one.value, one.metadata.name),
            default=None,
        )
        if default is not None:
            name = spec["priorityClassName"] = default.metadata.name
    if name and name not in classes:
        return f"no PriorityClass with name {name} was found"
    value, policy = 0, "PreemptLowerPriority"
    if name:
        value, policy = classes[name].value, classes[name].preemption_policy or policy
    if spec.get("priority") not in (None, value) or spec.get("preemptionPolicy") not in (None, policy):
        return "priority admission controller computed another value"
    spec["priority"], spec["preemptionPolicy"] = value, policy
    return ""
