"""Conditions of policies on Bindings, and messages that an expression makes."""

import pytest

from tests.native.comparing import Both, pod_request
from tests.policy.builders import engine, rules
from webhook.policy.model.values import CAN_BE_PREEMPTED

SHIELD = f"{{name: s, protectAnnotations: {{keys: [{CAN_BE_PREEMPTED}], allow: [{{namespaces: [team-a]}}]}}}}"
OBJECTS = [{"kind": "Namespace", "metadata": {"name": "team-a", "labels": {"owner": "x"}}}]


@pytest.mark.parametrize(
    "expression",
    [
        "'lift' in object.metadata.labels",
        "!('lift' in object.metadata.labels)",
        "object.metadata.?labels[?'lift'].hasValue()",
        "'other' in object.metadata.annotations",
        "object.metadata.name == 'a'",
        "object.kind == 'Pod'",
        "has(object.spec)",
        "oldObject == null",
        "oldObject.metadata.labels.size() == 0",
        "'owner' in namespaceObject.metadata.labels",
        "request.operation == 'CREATE'",
    ],
)
@pytest.mark.parametrize("labels", [{}, {"lift": "1"}], ids=["bare", "with labels of its own"])
def test_a_binding_is_no_pod(expression, labels):
    """Whoever binds chooses the labels of the Binding: they neither switch a policy on nor off, in either form."""
    conditions = f'[{{name: c, expression: "{expression}"}}]'
    both = Both(engine(rules(SHIELD, conditions=conditions)).policies, OBJECTS)
    meta = {"name": "a", "namespace": "team-a", "labels": labels, "annotations": {CAN_BE_PREEMPTED: "true"}}
    body = {"kind": "Binding", "apiVersion": "v1", "metadata": meta, "target": {"name": "n"}}
    webhook, native = both.validate(pod_request(body, user="system:kube-scheduler"))
    assert native.failed == webhook.failed
    assert native.failed or native.denied == webhook.denied


@pytest.mark.parametrize("words", ["'two\\\\n lines'", "object.spec.nothing", "'x'"])
def test_an_expression_for_the_message(words):
    """On one line; the message stands for one that fails."""
    rule = f'{{name: v, validate: {{expression: "false", message: say so, messageExpression: "{words}"}}}}'
    both = Both(engine(rules(rule)).policies, OBJECTS)
    meta = {"name": "a", "namespace": "team-a"}
    webhook, native = both.create(pod_request({"kind": "Pod", "metadata": meta, "spec": {"containers": []}}))
    assert native.denied == webhook.denied
    assert len(native.denied) == 1
