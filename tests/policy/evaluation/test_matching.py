"""`match` and `exclude`: which requests a policy is about."""

import pytest

from tests.policy.builders import create, define, engine, namespace, outcomes, pod, rules, update, user
from webhook.policy.model.globs import intersect, literal_prefix, name_matcher

DENY = "{name: v, enforcement: warn, validate: {expression: 'false', message: m, resources: [pods, priorityclasses]}}"
PROD = namespace("team-a", stage="prod")
ACCOUNT = user("system:serviceaccount:ci:deployer", "system:serviceaccounts")


def applies(request, **parts):
    """Whether a policy with these parts is about the request."""
    return bool(outcomes(engine(rules(DENY, **parts)), request))


@pytest.mark.parametrize(
    ("match", "request_", "expected"),
    [
        pytest.param("{}", create(), True, id="empty"),
        pytest.param("{namespaces: [team-a]}", create(), True, id="namespace"),
        pytest.param("{namespaces: [team-b, 'x*']}", create(), False, id="other namespace"),
        pytest.param("{namespaces: ['team-*']}", create(), True, id="namespace glob"),
        pytest.param("{namespaces: ['*-a']}", create(), True, id="namespace glob at the end"),
        pytest.param("{namespaces: ['team-*']}", create(namespace="teams"), False, id="glob that is almost it"),
        pytest.param("{namespaceSelector: {}}", create(), True, id="empty namespaceSelector"),
        pytest.param(
            "{namespaceSelector: {matchLabels: {stage: prod}}}",
            create(namespace_object=PROD),
            True,
            id="namespace label",
        ),
        pytest.param("{namespaceSelector: {matchLabels: {stage: prod}}}", create(), False, id="namespace unknown"),
        pytest.param(
            "{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: team-a}}}", create(), True, id="name label"
        ),
        pytest.param(
            "{namespaceSelector: {matchExpressions: [{key: stage, operator: NotIn, values: [prod]}]}}",
            create(namespace_object=PROD),
            False,
            id="namespace expression",
        ),
        pytest.param(
            "{objectSelector: {matchLabels: {a: b}}}", create(pod(labels={"a": "b"})), True, id="object label"
        ),
        pytest.param("{objectSelector: {matchLabels: {a: b}}}", create(pod()), False, id="no object label"),
        pytest.param('{objectSelector: {matchLabels: {a: ""}}}', create(pod(labels={"a": ""})), True, id="empty label"),
        pytest.param('{objectSelector: {matchLabels: {a: ""}}}', create(pod()), False, id="absent is not empty"),
        pytest.param(
            '{objectSelector: {matchExpressions: [{key: a, operator: In, values: ["", b]}]}}',
            create(pod(labels={"a": ""})),
            True,
            id="empty among values",
        ),
        pytest.param(
            "{objectSelector: {matchLabels: {a: b}}}",
            create(pod(labels={"a": ["b"]})),
            False,
            id="label that is no text",
        ),
        pytest.param("{subjects: [{kind: User, name: alice}]}", create(), True, id="user"),
        pytest.param("{subjects: [{kind: User, name: 'al*'}]}", create(), True, id="user glob"),
        pytest.param("{subjects: [{kind: Group, name: alice}]}", create(), False, id="a user is no group"),
        pytest.param("{subjects: [{kind: Group, name: 'system:auth*'}]}", create(), True, id="group glob"),
        pytest.param(
            "{subjects: [{kind: ServiceAccount, namespace: ci, name: deployer}]}",
            create(user=ACCOUNT),
            True,
            id="service account",
        ),
        pytest.param("{operations: [CREATE]}", create(), True, id="operation"),
        pytest.param("{operations: [CREATE]}", update(pod(), pod()), False, id="other operation"),
        pytest.param(
            "{namespaces: [team-a], subjects: [{kind: User, name: bob}]}", create(), False, id="everything must hold"
        ),
        pytest.param("{namespaces: [x]}", define("c", 1), True, id="a class lies in no namespace"),
        pytest.param("{namespaceSelector: {matchLabels: {x: y}}}", define("c", 1), True, id="nor under its labels"),
        pytest.param("{subjects: [{kind: User, name: bob}]}", define("c", 1), False, id="but someone defines it"),
    ],
)
def test_match_and_exclude(match, request_, expected):
    """A request matches when everything named holds; as an `exclude` the same words keep it out."""
    assert applies(request_, match=match) is expected
    excluded = expected and match != "{}" and not (request_.resource == "priorityclasses" and "namespace" in match)
    assert applies(request_, exclude=match) is not excluded


LABELLED, PLAIN = pod(labels={"a": "b"}), pod()


@pytest.mark.parametrize(
    ("old", "new", "matched", "excluded"),
    [
        pytest.param(LABELLED, LABELLED, True, True, id="stays"),
        pytest.param(LABELLED, PLAIN, True, False, id="taken off"),
        pytest.param(PLAIN, LABELLED, True, False, id="put on"),
        pytest.param(PLAIN, PLAIN, False, False, id="never there"),
    ],
)
def test_nobody_decides_by_a_label_in_the_same_update(old, new, matched, excluded):
    """Taking a label off escapes no policy, and putting one on excludes from none."""
    selector = "{objectSelector: {matchLabels: {a: b}}}"
    assert applies(update(old, new), match=selector) is matched
    assert applies(update(old, new), exclude=selector) is not excluded


def test_exclude_beats_match():
    """What is excluded stays out, though it matches."""
    assert not applies(create(), match="{namespaces: ['team-*']}", exclude="{namespaces: [team-a]}")
    assert applies(create(namespace="team-b"), match="{namespaces: ['team-*']}", exclude="{namespaces: [team-a]}")


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT", ""])
def test_other_operations_are_not_judged(operation):
    """Only CREATE and UPDATE are policy's business."""
    assert not applies(create(operation=operation))


def test_other_resources_are_not_judged():
    """Only pods, workloads and PriorityClasses are."""
    assert not applies(create(resource="configmaps"))


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("a", "a", True),
        ("a", "ab", False),
        ("*", "", True),
        ("a*", "a", True),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("*b*", "abc", True),
        ("a*b*c", "a-b-b-c", True),
        ("a*b*c", "a-c-b", False),
        ("*ab*ab", "ab", False),
        ("**", "x", True),
        ("a.c", "abc", False),
    ],
)
def test_globs(pattern, name, matches):
    """A star stands for any characters, and nothing else is special."""
    assert name_matcher([pattern])(name) is matches


def test_globs_stay_fast():
    """Many stars against a long name take no time."""
    assert not name_matcher(["a*" * 60 + "b"])("a" * 5000)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a*", "*b", True),
        ("a*", "b*", False),
        ("online-*", "online", False),
        ("online*", "online", True),
        ("*-x", "a-*-y", False),
        ("*", "", True),
        ("a*c", "ab*", True),
    ],
)
def test_globs_that_share_a_name(one, other, both):
    """Whether any name matches two globs is found without trying names."""
    assert intersect(one, other) is both
    assert intersect(other, one) is both


def test_literal_prefix():
    """What every match of a glob begins with."""
    assert [literal_prefix(glob) for glob in ("team-*", "*", "a")] == ["team-", "", "a"]
