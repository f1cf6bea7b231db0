"""The entries of the two webhook configurations, generated from the policies in force. Pure.

Their conditions are tests in CEL of what a request changes or carries, which hold or do not, and fail on no object.
Fields that may be absent are selected as optionals, which Kubernetes knows from 1.30 on; two absent ones are equal.

An entry is written with every field that the API server would otherwise fill in, so that what is stored can be compared
with what is wanted. `docs/webhook.md` says what each entry is for.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import msgspec

from webhook.admission.configmaps import POLICIES, PROBE
from webhook.admission.context import OWN_NAMESPACE, RECONCILER
from webhook.kube.pods import TEMPLATE_PATHS, WORKLOADS
from webhook.policy.evaluation.reads import PRESERVED, RESIZED, Reads, protected_annotations, reads_on_update
from webhook.policy.model.policies import Policies
from webhook.policy.model.values import MARK, WEBHOOK_ANNOTATIONS

Json = dict[str, Any]
Entry = Json
"""One element of `webhooks`, as JSON data."""

MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
"""The two kinds of configuration."""
EXEMPT = "giveway.dev/exempt"
"""Namespaces with this label, whatever its value, are never asked about."""
PHASES = {MUTATING: "mutate", VALIDATING: "validate"}
"""The path of each kind, without the slash."""
PROBES = frozenset(f"probe.{phase}.giveway.dev" for phase in PHASES.values())
"""The entries by which the server finds out that reviews come through."""

_TIMEOUT = 5
"""Seconds the API server waits for an answer."""
_PROBING = f"request.name == '{PROBE}' && has(request.dryRun) && request.dryRun"
_RESOLVED = ("spec.?preemptionPolicy", "spec.?priority")
"""The fields that the Priority plugin fills in."""
_SCHEDULING = "scheduling.k8s.io"
_any_of = " || ".join
"""At least one of the tests holds."""


class WebhookTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where reviews are sent: the Service `namespace/service`, or `url` (without a path) if there is one.

    `namespace` is giveway's own in either case, `reconciler` the user name of its reconciler. `failure_policy` is what
    happens to pods and PriorityClasses when nobody answers: "Fail" or "Ignore". `priority_plugin` says whether the API
    server's own Priority plugin runs; if not, the webhook does its work on every pod (docs/kubernetes-behaviour.md K1).
    """

    namespace: str = OWN_NAMESPACE
    service: str = "giveway-webhook"
    port: int = 443
    url: str | None = None
    failure_policy: str = "Fail"
    reconciler: str = RECONCILER
    priority_plugin: bool = True


def entries(policies: Policies, target: WebhookTarget) -> dict[str, list[Entry]]:
    """The `webhooks` of both configurations, by kind, without `caBundle`, by policies alone."""
    return {MUTATING: _mutating(target), VALIDATING: _validating(policies, target)}


def _mutating(target: WebhookTarget) -> list[Entry]:
    """Those that fill in: new pods, PriorityClasses, and the probe."""
    entry = partial(_entry, target, MUTATING)
    # A manifest that knows nothing of what the pod was given. It can refuse nothing: if an
    # update stays as it is sent, the API server and validation refuse what may not change
    completed, everywhere = [MANIFEST_AGAIN], {}
    if not target.priority_plugin:
        completed += map(left_out, _RESOLVED)
        everywhere = {"namespaceSelector": _outside_exempt()}
    left = {"leaves-something-out": _any_of(completed)}
    update = entry("pods-update", [_rule("", ["pods"], ["UPDATE"])], left) | _OPEN | everywhere
    return [
        entry("pods", [_rule("", ["pods"], ["CREATE"])]),
        *_system_pods(target, MUTATING),
        update,
        entry("priorityclasses", [_rule(_SCHEDULING, ["priorityclasses"], _BOTH, scope="Cluster")]),
        entry("podgroups", [_groups("podgroups")], _NEW_GROUP),
        _probe(target, MUTATING),
    ]


def _validating(policies: Policies, target: WebhookTarget) -> list[Entry]:
    """Those that judge, each with the test by which only what is read is sent."""
    entry = partial(_entry, target, VALIDATING)
    reads, protected = reads_on_update(policies), protected_annotations(policies)
    # A user name may have quotes in it
    reconciler = target.reconciler.replace("\\", "\\\\").replace("'", "\\'")
    of_others = {"not-the-reconciler": f"request.userInfo.username != '{reconciler}'"}
    # A kubelet's update of the status changes no mark, and never
    # travels, also of a pod that is being deleted
    changes = _of_marks(changed_key, protected)
    on_status = of_others | {"protected-keys": changes}
    # What a Binding carries goes to the pod. It has no spec, and there is no old one
    on_binding = {"protected-keys": _of_marks(present_key, protected)}
    workloads: dict[str, list[str]] = {}
    for group, resource in WORKLOADS:
        workloads.setdefault(group, []).append(resource)
    # The policies' own ConfigMap. The servers check it again when
    # they load it, so it need not wait for them
    named = {"the-policies": f"request.name == '{POLICIES}'"}
    own_policies = entry("policies", [_rule("", ["configmaps"], _BOTH)], named)
    on_pods = {"something-to-judge": pod_condition(reads, protected)}
    pods = [_rule("", ["pods"], _BOTH)]
    if "spec" in reads.parts:
        pods.append(_rule("", [*RESIZED], ["UPDATE"]))
    new_template = {"new-template": _NEW_TEMPLATE}
    templates = [_rule(*rows, _BOTH) for rows in workloads.items()]
    classes = _rule(_SCHEDULING, ["priorityclasses"], [*_BOTH, "DELETE"], scope="Cluster")
    return [
        entry("pods", pods, on_pods),
        *_system_pods(target, VALIDATING),
        entry("pods-status", [_rule("", ["pods/status"], ["UPDATE"])], on_status),
        entry("pods-binding", [_rule("", ["pods/binding", "bindings"], ["CREATE"])], on_binding),
        # Templates are judged where their author sees the answer. Their pods are judged again,
        # and so are the groups that are made of templates: nothing is lost if nobody answers
        entry("workloads", templates, new_template) | _OPEN,
        entry("priorityclasses", [classes]),
        entry("podgroups", [_groups("podgroups")], _NEW_GROUP),
        entry("podgroup-templates", [_groups("workloads")], _NEW_GROUP) | _OPEN,
        own_policies | _OPEN | _own(target),
        _probe(target, VALIDATING),
    ]


def changed(path: str) -> str:
    """The field differs. Parts of the path that may be absent are written `.?name`."""
    return f"object.{path} != oldObject.{path}"


def changed_metadata(field: str) -> str:
    """A field of the metadata differs as a whole."""
    return changed(f"metadata.?{field}")


def changed_key(field: str, key: str) -> str:
    """One label or annotation differs. Kubernetes' keys, which policies hold, need no escaping."""
    return changed(f"metadata.?{field}[?'{key}']")


def left_out(path: str) -> str:
    """The field was there and is not any more; parts that may be absent are written `.?name`."""
    return f"oldObject.{path}.hasValue() && !object.{path}.hasValue()"


def present_key(field: str, key: str) -> str:
    """One label or annotation is there, with whatever value."""
    return f"object.?metadata.?{field}[?'{key}'].hasValue()"


def pod_condition(reads: Reads, protected: Collection[str]) -> str:
    """Which CREATEs and UPDATEs of pods are asked about: all new pods, and changes of what is read.

    Taking a finalizer off, as the Job controller does with every pod that ended, or renewing an
    annotation by which somebody holds a lead does not wait for the webhook. Of a pod that is being
    deleted only the protected keys are asked about.
    """
    tests = [changed(f"spec.?{field}") for field in PRESERVED]
    if "spec" in reads.parts:
        tests = [changed("spec")]
    keys = {"annotations": reads.annotations - set(protected), "labels": reads.labels - {MARK}}
    for part, read in keys.items():
        if part in reads.parts:
            tests.append(changed_metadata(part))
        else:
            tests += [changed_key(part, key) for key in sorted(read)]
    tests += map(changed_metadata, sorted(reads.parts & {"finalizers", "ownerReferences"}))
    others = f"!has(object.metadata.deletionTimestamp) && ({_any_of(tests)})"
    return _any_of(["request.operation == 'CREATE'", _of_marks(changed_key, protected), others])


def _of_marks(test: Callable[[str, str], str], protected: Collection[str]) -> str:
    """The test holds of a protected annotation, or of the mark."""
    tests = [test("annotations", key) for key in sorted(protected)]
    return _any_of([*tests, test("labels", MARK)])


_BOTH = ["CREATE", "UPDATE"]
_OPEN = {"failurePolicy": "Ignore"}
"""What waits for nobody: nothing is lost if no webhook answers."""
_NEW_GROUP = {"new-spec": f"request.operation == 'CREATE' || {changed('spec')}"}
_GIVEN = (f"metadata.?labels[?'{MARK}']", *(f"metadata.?annotations[?'{key}']" for key in WEBHOOK_ANNOTATIONS))
_BEFORE, _NOW = (_any_of(f"{state}.{path}.hasValue()" for path in _GIVEN) for state in ("oldObject", "object"))
NOTHING_LEFT = f"({_BEFORE}) && !({_NOW})"
"""Nothing is left by which one knows what giveway gave the pod: its own manifest replaces it."""
MANIFEST_AGAIN = f"{changed('spec.?priorityClassName')} || {NOTHING_LEFT}"
"""Another class is named, or nothing is left of what giveway gave the pod."""
_NEW_TEMPLATE = f"request.operation == 'CREATE' || {_any_of(changed('.?'.join(path)) for path in TEMPLATE_PATHS)}"


def _entry(
    target: WebhookTarget,
    kind: str,
    name: str,
    rules: list[Json],
    conditions: dict[str, str] | None = None,
    *,
    phase: str = "",
) -> Entry:
    """One webhook of a configuration, for one kind of request.

    `conditions` are expressions by their names; `phase` is the path, if it is not the kind's own.
    """
    path = f"/{phase or PHASES[kind]}"
    client: Entry = {"service": {"namespace": target.namespace, "name": target.service}}
    client["service"] |= {"path": path, "port": target.port}
    if target.url is not None:
        client = {"url": f"{target.url.rstrip('/')}{path}"}
    outside: Entry = {}
    if any(rule["scope"] == "Namespaced" for rule in rules):
        # What the cluster needs to get back on its feet, and the
        # webhook itself, must not wait for it
        outside = _outside_exempt(_named("NotIn", "kube-system", target.namespace))
    tests = [{"name": what, "expression": test} for what, test in (conditions or {}).items()]
    made: Entry = {
        "name": f"{name}.{PHASES[kind]}.giveway.dev",
        "clientConfig": client,
        "rules": rules,
        "namespaceSelector": outside,
        "objectSelector": {},
        "matchConditions": tests,
        "admissionReviewVersions": ["v1"],
        "failurePolicy": target.failure_policy,
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": _TIMEOUT,
    }
    # Another webhook may set or change the class after this one
    return made | ({"reinvocationPolicy": "IfNeeded"} if kind == MUTATING else {})


def _probe(target: WebhookTarget, kind: str) -> Entry:
    probe = _entry(target, kind, "probe", [_rule("", ["configmaps"], ["UPDATE"])], {"the-probe": _PROBING})
    return probe | _OPEN | _own(target)


def _system_pods(target: WebhookTarget, kind: str) -> list[Entry]:
    """What the Priority plugin does, for pods of the system: without policies or waiting."""
    if target.priority_plugin:
        return []
    rules, phase = [_rule("", ["pods"], ["CREATE"])], f"{PHASES[kind]}-priority"
    entry = _entry(target, kind, "pods-system", rules, phase=phase) | _OPEN
    entry["namespaceSelector"] = _outside_exempt(_named("In", "kube-system", target.namespace))
    return [entry]


def _own(target: WebhookTarget) -> Entry:
    return {"namespaceSelector": {"matchExpressions": [_named("In", target.namespace)]}}


def _outside_exempt(*more: Json) -> Json:
    return {"matchExpressions": [*more, {"key": EXEMPT, "operator": "DoesNotExist"}]}


def _named(operator: str, *names: str) -> Json:
    return {"key": "kubernetes.io/metadata.name", "operator": operator, "values": sorted(set(names))}


def _groups(resource: str) -> Json:
    """PodGroups and Workloads in every version: rules may name what is not served."""
    return _rule(_SCHEDULING, [resource], _BOTH, version="*")


def _rule(
    group: str, resources: list[str], operations: list[str], *, version: str = "v1", scope: str = "Namespaced"
) -> Json:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": resources,
        "operations": operations,
        "scope": scope,
    }
