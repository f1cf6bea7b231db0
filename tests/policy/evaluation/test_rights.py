"""Which rights, and which `match` by subjects, are refused because they would be everybody's."""

import pytest

from tests.policy.builders import document, loaded, rules, table
from webhook.policy.files.loading import load_or_raise
from webhook.policy.model.values import CAN_BE_PREEMPTED as KEY
from webhook.policy.shapes.findings import PolicyError, Severity

ABOUT_CLASSES = "rules:\n- {name: v, validate: {expression: 'true', message: m, resources: [priorityclasses]}}"
VALIDATED = ABOUT_CLASSES.replace("priorityclasses", "pods")
DEFAULT = "rules:\n- {name: d, defaultPriorityClass: standard}"
PLATFORM = "{subjects: [{kind: Group, name: platform}]}"


def use(right):
    """A spec whose one right is this."""
    return f"rules:\n- {{name: r, reserve: {{from: 1, to: 9, use: {right}}}}}"


def shield(right, operations="[UPDATE]"):
    """A spec that leaves an annotation to this right."""
    key = "godel.bytedance.com/can-be-preempted"
    return f"rules:\n- {{name: s, protectAnnotations: {{keys: [{key}], operations: {operations}, allow: {right}}}}}"


def account(namespace, name):
    """A right of service accounts."""
    return f"{{subjects: [{{kind: ServiceAccount, namespace: {namespace}, name: '{name}'}}]}}"


def group(name):
    """A right of a group."""
    return f"{{subjects: [{{kind: Group, name: '{name}'}}]}}"


def told(spec):
    """Severity and words of each finding."""
    return [(one.severity, one.message) for one in loaded(spec).findings]


CONTROLLERS = [
    pytest.param(account("kube-system", "*-controller"), id="what was recommended once"),
    pytest.param(account("kube-system", "replicaset-controller"), id="one controller"),
    pytest.param(account("kube-system", "ttl-controller"), id="anything called a controller"),
    pytest.param(account("kube-system", "*"), id="all of kube-system"),
    pytest.param(account("'*'", "job-controller"), id="any namespace"),
    pytest.param(account("'*'", "*"), id="every service account"),
    pytest.param(group("system:serviceaccounts"), id="their group"),
    pytest.param(group("system:serviceaccounts:kube-system"), id="the group of kube-system"),
    pytest.param(group("system:authenticated"), id="everybody"),
    pytest.param(group("system:*"), id="group glob"),
    pytest.param(group("*"), id="any group"),
    pytest.param("{subjects: [{kind: User, name: '*'}]}", id="any user"),
    pytest.param("{subjects: [{kind: User, name: 'system:kube-controller-manager'}]}", id="kube-controller-manager"),
    pytest.param("{subjects: [{kind: User, name: 'system:serviceaccount:kube-system:*'}]}", id="user glob"),
    pytest.param("{subjects: [{kind: Group, name: platform}, {kind: Group, name: '*'}]}", id="beside others"),
    pytest.param("{namespaces: ['*'], " + group("*")[1:], id="every namespace by name"),
    pytest.param("{namespaceSelector: {}, " + group("*")[1:], id="every namespace by selector"),
    pytest.param("{objectSelector: {matchLabels: {a: b}}, " + group("*")[1:], id="a label does not guard it"),
]


@pytest.mark.parametrize("right", CONTROLLERS)
@pytest.mark.parametrize(
    "spec", [use, lambda right: shield(right, "[CREATE, UPDATE]")], ids=["reserve", "protectAnnotations"]
)
def test_a_right_of_controllers_is_refused(spec, right, tmp_path):
    """It would be the right of whoever makes a workload; serve does not load it, and the text names the mend."""
    ((severity, text),) = told(spec(right))
    assert severity is Severity.ERROR
    assert "whoever makes a workload" in text
    assert 'add "namespaces" or "namespaceSelector"' in text
    (tmp_path / "p.yaml").write_text(document(spec(right)))
    with pytest.raises(PolicyError):
        load_or_raise(tmp_path)


@table(
    "spec",
    {
        "by namespace": use("{namespaces: [ingress]}"),
        "people of a namespace": use("{namespaces: [ingress], " + PLATFORM[1:]),
        "by namespace label": use("{namespaceSelector: {matchLabels: {a: b}}, " + group("*")[1:]),
        "labels in a namespace": use("{namespaces: [x], objectSelector: {matchLabels: {a: b}}}"),
        "everybody, plainly": use("{}"),
        "who may change a pod that runs": shield(PLATFORM),
        "everybody may change a pod that runs": shield(group("system:authenticated")),
        "updates": "match: {subjects: [{kind: Group, name: g}], operations: [UPDATE]}\n" + DEFAULT,
        "only pods that run are meant": f"match: {PLATFORM}\n" + shield("{}"),
        "only classes are meant": f"match: {PLATFORM}\n{ABOUT_CLASSES}",
        "by both": "exclude: {namespaces: [a], subjects: [{kind: Group, name: g}]}\n" + DEFAULT,
    },
)
def test_nothing_is_said_of_what_holds_for_author_and_pods(spec):
    """Namespaces survive everything, and a change is made by who asks for it."""
    assert told(spec) == []


CONTROLLERS = "{kind: Group, name: 'system:serviceaccounts'}"
MEANT = PLATFORM.replace("]", f", {CONTROLLERS}]")


@table(
    "rule",
    {
        "allow-list": "{name: r, priorityClasses: {allow: [low]}}",
        "range": "{name: r, reserve: {from: 1, to: 9}}",
        "annotations": f"{{name: r, protectAnnotations: {{keys: [{KEY}], operations: [CREATE]}}}}",
        "expression": "{name: r, validate: {expression: 'false', message: m}}",
    },
)
def test_a_match_by_subjects_alone_must_say_that_it_means_controllers(rule):
    """Otherwise it refuses the pods of everybody's workloads, so it is not loaded, and the text says what to write."""
    ((severity, text),) = told(f"match: {PLATFORM}\n{rules(rule)}")
    assert severity is Severity.ERROR
    assert "would refuse the pods of everybody's Deployments" in text
    for mend in ('"namespaces" or "namespaceSelector"', '"operations: [UPDATE]"', CONTROLLERS.replace("'", "")):
        assert mend in text
    assert told(f"match: {MEANT}\n{rules(rule)}") == []
