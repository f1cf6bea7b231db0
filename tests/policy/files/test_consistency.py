"""What is wrong only between policies, each told with both places, and what raises only when a set is first used.

What raises already while it is read is in tests/admission/test_configmaps.py.
"""

import pytest

from tests.policy.builders import document, loaded, rules, table
from webhook.kube.instants import LAST_SECOND, epoch
from webhook.policy.evaluation import engine
from webhook.policy.evaluation import rules as rules_module
from webhook.policy.files import loading
from webhook.policy.files.loading import load_texts
from webhook.policy.model.policies import Policies
from webhook.policy.model.schedule import Schedule


def policy(name, spec, kind="PriorityPolicy"):
    """A file of that name with one policy."""
    return f"{name}.yaml", document(spec, kind, name)


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


ELSEWHERE = "match: {namespaces: [x]}\n"
LONG = (band("a", 1, 100), band("b", 2, 3), band("c", 50, 60))
COPY = policy("a", "rules:\n- {name: c, copyAnnotations: [example.com/evictable]}")
KNOWN = policy("a", "rules:\n- {name: c, copyAnnotations: [cluster-autoscaler.kubernetes.io/pod-scale-up-delay]}")


def reading(key):
    """A PreemptionPolicy that reads an annotation."""
    spec = f"preemptors: {{priorityClasses: [x]}}\nvictims: {{annotations: {{preemptible: [{key}]}}}}"
    return policy("b", spec, "PreemptionPolicy")


def beside(one, other, severity=None):
    """Two PreemptionPolicies with these preemptors, and what is told of them."""
    files = (managed("a", f"{{{one}}}"), managed("b", f"{{{other}}}"))
    words = "managed" if severity == "error" else "may mean"
    return files, [(severity, "b.yaml:1:1", words, "a.yaml:1:1")] if severity else []


def overlap(place, where, other="a.yaml:6:5", names=("b", "a")):
    """What is told of a range that overlaps another one."""
    return "error", place, f"the range of {names[0]}/band overlaps that of {names[1]}/band in {where}", other


TOLD = {
    "ranges beside each other": ((band("a", 1, 9), band("b", 10, 20, ELSEWHERE)), []),
    "one value in common": ((band("a", 1, 9), band("b", 9, 20, ELSEWHERE)), [overlap("b.yaml:7:5", "9 to 9")]),
    "a range further back": (LONG, [overlap("b.yaml:6:5", "2 to 3"), overlap("c.yaml:6:5", "50", names=("c", "a"))]),
    "whatever is wrong with others": (
        (band("a", 1, 9), band("b", 5, 20), ("z.yaml", "kind: nope\n")),
        [overlap("b.yaml:6:5", "5 to 9"), ("error", "z.yaml:1:7", "is no kind of policy", None)],
    ),
    "a name of both kinds": ((default("a", "x"), ("b.yaml", managed("a", "{priorityClasses: [x]}")[1])), []),
    "a glob and a name": beside("priorityClasses: ['x*']", "priorityClasses: [w, xz]", "error"),
    "a glob and a class with a twin": beside("priorityClasses: ['x*']", "twins: {xz: w}", "error"),
    "a glob and a twin": beside("priorityClasses: ['x*']", "twins: {w: xz}", "error"),
    "globs that may meet": beside("priorityClasses: ['x*']", "priorityClasses: ['*z']", "warning"),
    "globs that never meet": beside("priorityClasses: ['x*']", "priorityClasses: ['w*']"),
    "an annotation that nothing reads": ((COPY,), [("warning", "a.yaml:6:33", "unknown annotation", None)]),
    "an annotation that is known": ((KNOWN,), []),
    "an annotation that a PreemptionPolicy reads": ((COPY, reading("example.com/evictable")), []),
    "an annotation like a known one": (
        (reading("godel.bytedance.com/can-be-preemptd"),),
        [("warning", "b.yaml:6:41", "looks like a misspelling", None)],
    ),
}


@table("files, expected", TOLD)
def test_what_is_wrong_between_policies(files, expected):
    """A value is reserved once, a class has one PreemptionPolicy, an annotation is read by somebody.

    The whole texts, one of each kind, are in tests/admission/test_configmaps.py.
    """
    found = told(*files)
    assert [(row[0], row[1], row[3]) for row in found] == [
        (row[0], row[1], [row[3]] * bool(row[3])) for row in expected
    ]
    assert all(row[2] in text for (_, _, text, _), row in zip(found, expected, strict=True))


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
    known = {"online", "low", "standard", "high*"}
    found = load_texts(given, known_classes=known).findings
    assert [one.message.partition(" is not")[0] for one in found] == ['PriorityClass "lwo"', 'PriorityClass "standrd"']
    assert 'did you mean "low"?; for one that something else makes, add --known-class lwo' in found[0].message
    assert load_texts(given).findings == []


SPEC = rules(
    "{name: band, reserve: {from: 1, to: 9}}",
    "{name: v, validate: {expression: 'true', message: odd}}",
    exceptions="[{match: {namespaces: [a]}, rules: [v], reason: r, owner: o, until: 2030-01-01}]",
)
NIGHTLY = "preemptors: {priorityClasses: [a]}\nschedule: {cron: 0 22 * * *, duration: 8h}"


def failing(what):
    """A function that raises; it takes whatever the real one does."""

    def fail(*_args, **_more):
        raise OverflowError(what)

    return fail


@table(
    "owner, name, spec, line",
    {
        "the text of an exception": (loading, "excepted_text", SPEC, 5),
        "a range": (rules_module, "rights_text", SPEC, 7),
        "an expression": (engine.CompiledRule, "evaluate", SPEC, 8),
        "a schedule in words": (Schedule, "when", NIGHTLY, 1),
        "the end of a window": (Schedule, "ends", NIGHTLY, 1),
    },
)
def test_what_raises_is_an_error_at_its_place(owner, name, spec, line, monkeypatch):
    """Nothing of such a set is in use, and the finding says what raised."""
    monkeypatch.setattr(owner, name, failing("date value out of range"))
    found = loaded(spec, "PriorityPolicy" if spec is SPEC else "PreemptionPolicy")
    assert found.policies == Policies()
    errors = {error.source.line: error.message for error in found.errors}
    assert errors[line].startswith("this cannot be used: OverflowError: date value out of range")


@pytest.mark.parametrize("now", ["0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Etc/GMT+12"])
@pytest.mark.parametrize("cron", ["59 23 31 12 *", "0 0 29 2 *"])
def test_schedules_at_the_ends_of_time(cron, zone, now):
    """A schedule can be asked at any instant that there is; no window lies before year 1 or after year 9999."""
    spec = f"schedule: {{cron: '{cron}', duration: 744h, timeZone: {zone}}}\npreemptors: {{priorityClasses: [a]}}"
    found = load_texts([("m.yaml", document(spec, "PreemptionPolicy"))], now=epoch(now))
    assert found.errors == []
    (policy,) = found.policies.preemption
    assert policy.schedule.begins(LAST_SECOND) is None
