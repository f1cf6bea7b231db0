"""What of a pod the policies read when it is updated: never too little, and no more than must be."""

from tests.policy.builders import engine, rules, table
from webhook.policy.evaluation.reads import PARTS, reads_on_update
from webhook.policy.model.values import CAN_BE_PREEMPTED, MARK, OWN_ANNOTATIONS, PROTECTION_DURATION

ANY = {"annotations", "labels", "spec"}


def reads(*specs, preemption=""):
    return reads_on_update(engine(*specs, preemption=preemption).policies)


def validate(expression, resources="[pods]"):
    return f"{{name: v, validate: {{resources: {resources}, expression: {expression!r}}}}}"


@table(
    "expression, parts",
    {
        "spec": ("object.spec.priority < 5", {"spec"}),
        "optional": ("object.spec.?x.orValue(0) == 0", {"spec"}),
        "optional-part": ("object.?spec.orValue({}) == {}", {"spec"}),
        "spaces": ("object . metadata\n. labels['a'] == 'b'", {"labels"}),
        "two": ("object.metadata.annotations == oldObject.metadata.labels", {"annotations", "labels"}),
        "finalizers": ("size(object.metadata.?finalizers.orValue([])) == 0", {"finalizers"}),
        "old-is-null": ("oldObject == null || object.spec == oldObject.spec", {"spec"}),
        "operation": ("request.operation == 'CREATE' || has(object.spec.x)", {"spec"}),
        "only-what-is-fixed": ("object.metadata.name != 'a'", ANY),
        "nothing": ("true", ANY),
        "operation-alone": ("request.operation == 'CREATE'", ANY),
        "who-asks": ("request.userInfo.username == 'bob' && has(object.spec.x)", ANY),
        "namespace": ("namespaceObject.metadata.name == 'x' || has(object.spec.x)", ANY),
        "class": ("priorityClass.value > 5 || has(object.spec.x)", ANY),
        "the-object-as-a-whole": ("object == oldObject", set(PARTS)),
        "by-index": ("object['spec'].x == 1", {"spec"}),
        "metadata-as-a-whole": ("object.metadata == oldObject.metadata", set(PARTS)),
        "by-another-name": ("cel.bind(o, object, o.spec.x == 1)", {"spec"}),
        "metadata-by-index": ("object.metadata['labels'].a == 'b'", {"labels"}),
        "by-an-index-that-is-made": ("object[request.name].x == 1", set(PARTS)),
        "whether-a-part-is-there": ("'finalizers' in object.metadata", set(PARTS)),
    },
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
    """A condition, and the labels by which a policy or an exception selects, decide whether its expression is asked."""
    found = reads(
        "match: {objectSelector: {matchLabels: {a: b}}}\n"
        "exclude: {objectSelector: {matchExpressions: [{key: c, operator: Exists}]}}\n"
        "exceptions:\n"
        "- {match: {objectSelector: {matchLabels: {e: f}}}, rules: [v], reason: r, owner: o, until: 2030-01-01}\n"
        "conditions: [{name: x, expression: \"'k' in object.metadata.annotations\"}]\n"
        + rules(validate("object.spec.priority < 5"))
    )
    assert found.parts == {"annotations", "spec"}
    assert found.labels == {MARK, "a", "c", "e"}


@table(
    "spec",
    {
        "create-only": rules(validate("object == oldObject"), match="{operations: [CREATE]}"),
        "classes-only": rules(validate("object == oldObject", "[priorityclasses]")),
        "asked-only-with-a-protected-annotation": (
            "conditions: [{name: x, expression: 'object == null'}]\n"
            + rules("{name: p, protectAnnotations: {keys: [k]}}")
        ),
    },
)
def test_what_is_not_asked_at_an_update_is_not_read(spec):
    """Rules that say nothing of an UPDATE of other things do not make it travel."""
    assert reads(spec).parts == set()
