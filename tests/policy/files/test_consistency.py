"""What is wrong only between policies: each told with both places."""

from tests.policy.builders import indented, table
from webhook.policy.files.consistency import KnownClasses
from webhook.policy.files.loading import load_texts
from webhook.policy.shapes.findings import Severity


def policy(name, spec, kind="PriorityPolicy"):
    """A file of that name with one policy."""
    head = f"apiVersion: giveway.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n"
    return f"{name}.yaml", head + indented(spec)


def band(name, start, end, parts=""):
    """A policy that reserves a range."""
    return policy(name, f"{parts}rules:\n- {{name: band, reserve: {{from: {start}, to: {end}}}}}")


def default(name, class_name, parts="", also=""):
    """A policy that gives a default class."""
    return policy(name, f"{parts}rules:\n- {{name: d, defaultPriorityClass: {class_name}}}{also}")


def managed(name, preemptors):
    """A policy that manages classes."""
    return policy(name, f"preemptors: {preemptors}", "PreemptionPolicy")


def told(*files):
    """Severity, place, words and the other place of each finding."""
    return [
        (one.severity.value, str(one.source), one.message, [str(other.source) for other in one.related])
        for one in load_texts(list(files)).findings
    ]


@table(
    "one, other, overlap",
    {
        "beside each other": ((1, 9), (10, 20), None),
        "one value": ((1, 9), (9, 20), "9 to 9"),
        "inside": ((1, 100), (5, 20), "5 to 20"),
        "equal": ((-5, 5), (-5, 5), "-5 to 5"),
    },
)
def test_overlapping_ranges(one, other, overlap):
    """A value can be reserved once, whichever files and namespaces the policies are for."""
    found = told(band("a", *one), band("b", *other, parts="match: {namespaces: [x]}\n"))
    if overlap is None:
        assert found == []
    else:
        ((severity, source, message, related),) = found
        assert (severity, source, related) == ("error", "b.yaml:7:5" if one <= other else "a.yaml:6:5", ["a.yaml:6:5"])
        assert f"the range of b/band overlaps that of a/band in {overlap}" in message


def test_overlap_with_a_range_further_back():
    """A long range overlaps every later one within it, not only its neighbour."""
    found = told(band("a", 1, 100), band("b", 2, 3), band("c", 50, 60))
    assert [(source, related) for _, source, _, related in found] == [
        ("b.yaml:6:5", ["a.yaml:6:5"]),
        ("c.yaml:6:5", ["a.yaml:6:5"]),
    ]


def test_the_other_place_is_shown():
    """The text of a finding has the other place's line too."""
    (finding,) = load_texts([band("a", 1, 9), band("b", 5, 20)]).errors
    assert (
        "a.yaml:6:5: note: a/band reserves 1 to 9 (spec.rules[0])\n    6 |   - {name: band, reserve: {from: 1, to: 9}}"
        in str(finding)
    )


def test_different_defaults_for_the_same_pods():
    """Two policies of the same match may not give different defaults, in whichever order they name things."""
    ((severity, source, message, related),) = told(
        default("a", "x", "match: {namespaces: [m, q]}\n"), default("b", "w", "match: {namespaces: [q, m]}\n")
    )
    assert (severity, source, related) == ("error", "b.yaml:7:5", ["a.yaml:7:5"])
    assert 'default "w" never applies: a/d gives "x" to the same pods' in message


@table(
    "other",
    {
        "same class": default("b", "x"),
        "other match": default("b", "w", "match: {namespaces: [q]}\n"),
        "other exclude": default("b", "w", "exclude: {namespaces: [q]}\n"),
        "other condition": default("b", "w", "conditions: [{name: c, expression: 'true'}]\n"),
    },
)
def test_defaults_that_may_stand_side_by_side(other):
    """Only what is certainly the same pods is a conflict."""
    assert told(default("a", "x"), other) == []


def test_second_default_of_one_policy():
    """The second default of a policy never applies, even if it gives the same class."""
    assert [row[1] for row in told(default("a", "x", also="\n- {name: e, defaultPriorityClass: x}"))] == ["a.yaml:7:5"]


def test_default_that_the_policy_refuses():
    """A default that another rule of the policy refuses would deny every pod without a class."""
    ((_, source, message, related),) = told(default("a", "x", also="\n- {name: e, priorityClasses: {allow: [w]}}"))
    assert (source, related) == ("a.yaml:6:5", ["a.yaml:7:5"])
    assert "refused by a/e" in message


def test_names_are_there_once():
    """Two policies of one kind may not share a name; the two kinds may."""
    ((severity, source, message, related),) = told(default("a", "x"), ("b.yaml", default("a", "x")[1]))
    assert (severity, source, related) == ("error", "b.yaml:1:1", ["a.yaml:1:1"])
    assert 'two policies are named "a"' in message
    assert told(default("a", "x"), ("b.yaml", managed("a", "{priorityClasses: [x]}")[1])) == []


@table(
    "one, other, severity",
    {
        "name": ("{priorityClasses: [x]}", "{priorityClasses: [x]}", "error"),
        "glob and name": ("{priorityClasses: ['x*']}", "{priorityClasses: [w, xz]}", "error"),
        "glob and class with a twin": ("{priorityClasses: ['x*']}", "{twins: {xz: w}}", "error"),
        "glob and twin": ("{priorityClasses: ['x*']}", "{twins: {w: xz}}", "error"),
        "globs that may meet": ("{priorityClasses: ['x*']}", "{priorityClasses: ['*z']}", "warning"),
        "globs that never meet": ("{priorityClasses: ['x*']}", "{priorityClasses: ['w*']}", None),
    },
)
def test_a_class_has_one_preemption_policy(one, other, severity):
    """A class managed by two policies is an error, one that might be is a warning."""
    found = told(managed("a", one), managed("b", other))
    assert [row[0] for row in found] == ([severity] if severity else [])
    if found:
        assert (found[0][1], found[0][3]) == ("b.yaml:1:1", ["a.yaml:1:1"])


def test_annotations_that_a_preemption_policy_reads_are_known():
    """A key that some PreemptionPolicy reads may be copied and protected; one like a known key is a misspelling."""
    copy = policy("a", "rules:\n- {name: c, copyAnnotations: [example.com/evictable]}")
    assert [row[0] for row in told(copy)] == ["warning"]
    known = policy("a", "rules:\n- {name: c, copyAnnotations: [cluster-autoscaler.kubernetes.io/pod-scale-up-delay]}")
    assert told(known) == []
    reads = policy(
        "b",
        "preemptors: {priorityClasses: [x]}\nvictims: {annotations: {preemptible: [example.com/evictable]}}",
        "PreemptionPolicy",
    )
    assert told(copy, reads) == []
    misspelt = policy(
        "b",
        "preemptors: {priorityClasses: [x]}\n"
        "victims: {annotations: {preemptible: [godel.bytedance.com/can-be-preemptd]}}",
        "PreemptionPolicy",
    )
    assert "looks like a misspelling" in told(misspelt)[0][2]


def test_policies_with_errors_do_not_hide_what_is_wrong_elsewhere():
    """The checks between policies run over those that are right, whatever is wrong with the others."""
    broken = ("z.yaml", "kind: nope\n")
    findings = load_texts([band("a", 1, 9), band("b", 5, 20), broken]).findings
    assert [one.severity for one in findings] == [Severity.ERROR, Severity.ERROR]


CLASSES = """
preemptors: {priorityClasses: [online, "batch-*"], twins: {high: high-never}}
victims: {pairs: [{victims: {priorityClasses: [lwo]}}]}
"""


def test_classes_that_nobody_has():
    """Names of PriorityClasses are compared with those that there are; globs may mean classes that come later."""
    given = [
        policy("p", CLASSES, "PreemptionPolicy"),
        default("q", "standrd", also="\n- {name: r, reserve: {from: 1, to: 9, define: {names: [x]}}}"),
    ]
    known = KnownClasses({"online", "low", "standard"}, ("high*",))
    found = load_texts(given, known).findings
    assert [one.message.partition(" is not")[0] for one in found] == ['PriorityClass "lwo"', 'PriorityClass "standrd"']
    assert 'did you mean "low"?; for one that something else makes, add --known-class lwo' in found[0].message
    assert load_texts(given).findings == []
