"""What of a pod the policies read when it is updated: never too little, and no more than must be."""

import pytest

from tests.policy.builders import engine, rules
from webhook.policy.evaluation.reads import PARTS, reads_on_update
from webhook.policy.model.values import CAN_BE_PREEMPTED, MARK, OWN_ANNOTATIONS, PROTECTION_DURATION

ANY = {"annotations", "labels", "spec"}


def reads(*specs, preemption=""):
    return reads_on_update(engine(*specs, preemption=preemption).policies)


def validate(expression, resources="[pods]"):
    return f"{{name: v, validate: {{resources: {resources}, expression: {expression!r}}}}}"


@pytest.mark.parametrize(
    ("expression", "parts"),
    [
        pytest.param("object.spec.priority < 5", {"spec"}, id="spec"),
        pytest.param("object.spec.?x.orValue(0) == 0", {"spec"}, id="optional"),
        pytest.param("object.?spec.orValue({}) == {}", {"spec"}, id="optional-part"),
        pytest.param("object . metadata\n. labels['a'] == 'b'", {"labels"}, id="spaces"),
        pytest.param("object.metadata.annotations == oldObject.metadata.labels", {"annotations", "labels"}, id="two"),
        pytest.param("size(object.metadata.?finalizers.orValue([])) == 0", {"finalizers"}, id="finalizers"),
        pytest.param("oldObject == null || object.spec == oldObject.spec", {"spec"}, id="old-is-null"),
        pytest.param("request.operation == 'CREATE' || has(object.spec.x)", {"spec"}, id="operation"),
        pytest.param("object.metadata.name != 'a'", ANY, id="only-what-is-fixed"),
        pytest.param("true", ANY, id="nothing"),
        pytest.param("request.operation == 'CREATE'", ANY, id="operation-alone"),
        pytest.param("request.userInfo.username == 'bob' && has(object.spec.x)", ANY, id="who-asks"),
        pytest.param("namespaceObject.metadata.name == 'x' || has(object.spec.x)", ANY, id="namespace"),
        pytest.param("priorityClass == null || has(object.spec.x)", ANY, id="class"),
        pytest.param("object == oldObject", set(PARTS), id="the-object-as-a-whole"),
        pytest.param("object['spec'].x == 1", set(PARTS), id="by-index"),
        pytest.param("object.metadata == oldObject.metadata", set(PARTS), id="metadata-as-a-whole"),
        pytest.param("cel.bind(o, object, o.spec.x == 1)", set(PARTS), id="by-another-name"),
        pytest.param("object.metadata['labels'].a == 'b'", set(PARTS), id="metadata-by-index"),
    ],
)
def test_what_an_expression_reads(expression, parts):
    """Paths that name a part are told apart; whatever else an expression does counts as reading more."""
    assert reads(rules(validate(expression))).parts == parts


def test_without_expressions_only_what_is_protected_is_read():
    """Classes and ranges look at a changed priority alone; the mark and the protected annotations count by key."""
    found = reads(
        rules(
            "{name: c, priorityClasses: {deny: [x]}}",
            "{name: r, reserve: {from: 5, to: 9}}",
            "{name: d, defaultPriorityClass: a}",
            "{name: p, protectAnnotations: {keys: [team/owner]}}",
            match="{objectSelector: {matchLabels: {a: b}}}",
        ),
        preemption="preemptors: {priorityClasses: [a]}\nvictims: {annotations: {preemptible: [other/spelling]}}",
    )
    assert found.parts == set()
    assert found.labels == {MARK}
    keys = {CAN_BE_PREEMPTED, PROTECTION_DURATION, "team/owner", "other/spelling"}
    assert found.annotations == keys | set(OWN_ANNOTATIONS)


def test_what_narrows_a_rule_is_read_with_it():
    """A condition, and the labels by which a policy selects, decide whether its expression is asked."""
    found = reads(
        "match: {objectSelector: {matchLabels: {a: b}}}\n"
        "exclude: {objectSelector: {matchExpressions: [{key: c, operator: Exists}]}}\n"
        "conditions: [{name: x, expression: \"'k' in object.metadata.annotations\"}]\n"
        + rules(validate("object.spec.priority < 5"))
    )
    assert found.parts == {"annotations", "spec"}
    assert found.labels == {MARK, "a", "c"}


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(rules(validate("object == oldObject"), match="{operations: [CREATE]}"), id="create-only"),
        pytest.param(rules(validate("object == oldObject", "[priorityclasses]")), id="classes-only"),
        pytest.param(
            "conditions: [{name: x, expression: 'object == null'}]\n"
            + rules("{name: p, protectAnnotations: {keys: [k]}}"),
            id="asked-only-with-a-protected-annotation",
        ),
    ],
)
def test_what_is_not_asked_at_an_update_is_not_read(spec):
    """Rules that say nothing of an UPDATE of other things do not make it travel."""
    assert reads(spec).parts == set()
