"""Exceptions with an end: whom they let in, what they say, when they are over, and what is wrong with them."""

import pytest

from tests.policy.builders import (
    create,
    define,
    engine,
    loaded,
    only_message,
    outcomes,
    pod,
    rules,
    table,
    update,
    user,
)
from webhook.kube.instants import epoch
from webhook.policy.evaluation.rules import excepted_text
from webhook.policy.model.values import CAN_BE_PREEMPTED
from webhook.policy.reports import ended_findings, exceptions

END = epoch("2026-12-01T00:00:00Z")
BEFORE, AFTER = END - 1, END + 1
ALLOWED = "{name: allowed, priorityClasses: {allow: [standard]}}"
BAND = "{name: band, reserve: {from: 100, to: 200}}"
SHIELD = f"{{name: shield, protectAnnotations: {{keys: [{CAN_BE_PREEMPTED}]}}}}"
FAILS = '{name: fails, validate: {expression: "object.spec.absent == 1", message: m}}'


def excepting(*rows, match="{namespaces: [team-a]}", names="allowed", until="2026-11-30", **parts):
    """A spec of these rules with one exception from the named ones."""
    body = f"{{match: {match}, rules: [{names}], reason: batch moves, owner: team-a, until: {until}}}"
    return rules(*rows, **parts, exceptions=f"[{body}]")


def refused(request, spec, now):
    """Which rules refuse a request at this time."""
    request.now = now
    return [verdict.id for verdict in engine(spec).judge(request) if verdict.denies]


ALICE = "{subjects: [{kind: User, name: alice}]}"
SETS = update(pod(), pod(annotations={CAN_BE_PREEMPTED: "true"}))
EXCEPTED = {
    "allowed classes": (excepting(ALLOWED), create(pod("other")), "p/allowed"),
    "use of a range": (excepting(BAND, names="band"), create(pod(priority=150)), "p/band"),
    "definition in a range": (excepting(BAND, names="band", match=ALICE), define("c", 150), "p/band"),
    "a protected annotation": (excepting(SHIELD, names="shield"), SETS, "p/shield"),
    "an expression that fails": (excepting(FAILS, names="fails"), create(), "p/fails"),
}


@table("spec, request_, rule", EXCEPTED)
def test_an_exception_holds_until_its_end(spec, request_, rule):
    """The rule is violated all the same, says so in a warning until the end, and refuses from then on."""
    assert refused(request_, spec, BEFORE) == []
    found = [verdict for verdict in engine(spec).judge(request_) if verdict.outcome == "excepted"]
    assert [(verdict.id, verdict.warns) for verdict in found] == [(rule, True)]
    assert refused(request_, spec, END) == refused(request_, spec, AFTER) == [rule]


def test_a_request_without_a_time_has_no_exceptions():
    """Whoever forgets to say when it is lets nobody in."""
    assert outcomes(engine(excepting(ALLOWED)), create(pod("other"))) == {"p/allowed": "deny"}


def test_the_warning_says_until_when_why_and_who_answers_for_it():
    """The end comes first, the violation last."""
    request = create(pod("other"), now=BEFORE)
    assert only_message(engine(excepting(ALLOWED)), request) == (
        "rule p/allowed lets this in by an exception until 2026-12-01T00:00:00Z (team-a: batch moves): PriorityClass"
        ' "other" may not be used in namespace team-a: this rule allows standard'
    )


CONTROLLER = user("system:serviceaccount:kube-system:replicaset-controller")
OTHERS = {
    "another namespace": (excepting(ALLOWED, match="{namespaces: [team-b]}"), create(pod("other"))),
    "another rule": (excepting(ALLOWED, BAND, names="band"), create(pod("other"))),
    "somebody else": (excepting(ALLOWED, match=ALICE.replace("alice", "bob")), create(pod("other"))),
    "a controller, which may act for anybody": (
        excepting(ALLOWED, match=ALICE),
        create(pod("other"), user=CONTROLLER),
    ),
    "a class, which lies in no namespace": (excepting(BAND, names="band"), define("c", 150)),
}


@table("spec, request_", OTHERS)
def test_an_exception_is_for_whom_it_names(spec, request_):
    """It is compared as `exclude` is: everything named must hold, and who asks must be known."""
    assert refused(request_, spec, BEFORE)


def test_a_rule_under_audit_says_nothing_of_its_exceptions():
    """Nobody is refused or warned by such a rule, so nobody is told of the exception."""
    request = create(pod("other"), now=BEFORE)
    (verdict,) = engine(excepting(ALLOWED, enforcement="audit")).judge(request)
    assert (verdict.outcome, verdict.violated, verdict.warns) == ("excepted", False, False)


def test_the_trace_says_that_an_exception_was_used():
    """`--explain` shows the rule with the outcome `excepted`."""
    trace = []
    engine(excepting(ALLOWED)).judge(create(pod("other"), now=BEFORE), trace)
    assert [row.outcome for row in trace if row.rule == "allowed"] == ["excepted"]


def test_exceptions_are_listed_in_the_order_of_their_ends():
    """Each with its rules, for whom, until when, and whether it is over."""
    later = "{match: {namespaces: [b]}, rules: [allowed], reason: r, owner: o, until: 2026-12-24T18:00:00+01:00}"
    sooner = "{match: {namespaces: [a]}, rules: [allowed, band], reason: r, owner: o, until: 2026-11-30}"
    policies = loaded(rules(ALLOWED, BAND, exceptions=f"[{later}, {sooner}]")).policies
    found = exceptions(policies, END)
    assert [(one.rules, one.until, one.ended) for one in found] == [
        (("p/allowed", "p/band"), "2026-12-01T00:00:00Z", True),
        (("p/allowed",), "2026-12-24T17:00:00Z", False),
    ]
    assert str(found[1]) == "p/allowed: namespace b, until 2026-12-24T17:00:00Z (o: r)"
    (finding,) = ended_findings(policies, END)
    assert (finding.source.line, "ended 2026-12-01T00:00:00Z" in finding.message) == (5, True)
    assert not ended_findings(policies, BEFORE)


@pytest.mark.parametrize(
    ("until", "shown"),
    [
        ("9999-12-31", "9999-12-31T23:59:59Z"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59Z"),
        ("0001-01-01", "0001-01-02T00:00:00Z"),
    ],
)
def test_the_first_and_the_last_day_are_days(until, shown):
    """The list of exceptions and the warning name the end of any day that there is."""
    policies = loaded(excepting(ALLOWED, until=f"'{until}'")).policies
    assert [one.until for one in exceptions(policies, BEFORE)] == [shown]
    assert shown in excepted_text("p/allowed", policies.priority[0].exceptions[0], "no")


@table(
    "change, column, words",
    {
        "no date": ({"until": "tomorrow"}, 109, "expected a date such as 2026-12-31, or an instant"),
        "no such day": ({"until": "2026-02-30"}, 109, "not an RFC 3339 instant"),
        "no zone": ({"until": "2026-12-31T18:00:00"}, 109, "names no time zone"),
        "year 10000": ({"until": "9999-12-31T23:59:59-14:00"}, 109, "outside the years 0001 to 9999"),
        "year 0": ({"until": "0001-01-01T00:00:00+14:00"}, 109, "outside the years 0001 to 9999"),
        "rule": ({"names": "alowed"}, 16, 'a rule "alowed" that this policy does not have; did you'),
        "a rule that fills in": ({"names": "given"}, 16, 'rule "given" refuses nothing'),
        "everybody": ({"match": "{}"}, 24, "this excepts everybody"),
        "controllers": (
            {"match": '{subjects: [{kind: Group, name: "system:serviceaccounts"}]}'},
            24,
            "the right would be everybody's",
        ),
    },
)
def test_mistakes_have_a_place(change, column, words):
    """What is wrong in an exception is said with line and column."""
    given = "{name: given, defaultPriorityClass: standard}"
    (error,) = loaded(excepting(ALLOWED, given, **change)).errors
    assert words in error.message
    assert (error.source.line, error.source.column) == (5, column)
