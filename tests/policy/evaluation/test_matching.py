"""`match` and `exclude`: which requests a policy is about; what a namespace or a value concerns is looked up."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.native.strategies import CLASS_NAMES, NAMESPACES, labels, policy_sets, users
from tests.policy.builders import create, define, engine, namespace, outcomes, pod, rules, table, update, user
from webhook.policy.evaluation.engine import Engine
from webhook.policy.model.globs import intersect, literal_prefix, name_matcher
from webhook.policy.model.policies import Policies

DENY = "{name: v, enforcement: warn, validate: {expression: 'false', message: m, resources: [pods, priorityclasses]}}"
PROD = namespace("team-a", stage="prod")
ACCOUNT = user("system:serviceaccount:ci:deployer", "system:serviceaccounts")


def applies(request, **parts):
    """Whether a policy with these parts is about the request."""
    return bool(outcomes(engine(rules(DENY, **parts)), request))


@table(
    "match, request_, expected",
    {
        "empty": ("{}", create(), True),
        "namespace": ("{namespaces: [team-a]}", create(), True),
        "other namespace": ("{namespaces: [team-b, 'x*']}", create(), False),
        "namespace glob": ("{namespaces: ['team-*']}", create(), True),
        "namespace glob at the end": ("{namespaces: ['*-a']}", create(), True),
        "glob that is almost it": ("{namespaces: ['team-*']}", create(namespace="teams"), False),
        "empty namespaceSelector": ("{namespaceSelector: {}}", create(), True),
        "namespace label": ("{namespaceSelector: {matchLabels: {stage: prod}}}", create(namespace_object=PROD), True),
        "namespace unknown": ("{namespaceSelector: {matchLabels: {stage: prod}}}", create(), False),
        "name label": ("{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: team-a}}}", create(), True),
        "namespace expression": (
            "{namespaceSelector: {matchExpressions: [{key: stage, operator: NotIn, values: [prod]}]}}",
            create(namespace_object=PROD),
            False,
        ),
        "object label": ("{objectSelector: {matchLabels: {a: b}}}", create(pod(labels={"a": "b"})), True),
        "no object label": ("{objectSelector: {matchLabels: {a: b}}}", create(pod()), False),
        "empty label": ('{objectSelector: {matchLabels: {a: ""}}}', create(pod(labels={"a": ""})), True),
        "absent is not empty": ('{objectSelector: {matchLabels: {a: ""}}}', create(pod()), False),
        "empty among values": (
            '{objectSelector: {matchExpressions: [{key: a, operator: In, values: ["", b]}]}}',
            create(pod(labels={"a": ""})),
            True,
        ),
        "label that is no text": ("{objectSelector: {matchLabels: {a: b}}}", create(pod(labels={"a": ["b"]})), False),
        "user": ("{subjects: [{kind: User, name: alice}]}", create(), True),
        "user glob": ("{subjects: [{kind: User, name: 'al*'}]}", create(), True),
        "a user is no group": ("{subjects: [{kind: Group, name: alice}]}", create(), False),
        "group glob": ("{subjects: [{kind: Group, name: 'system:auth*'}]}", create(), True),
        "service account": (
            "{subjects: [{kind: ServiceAccount, namespace: ci, name: deployer}]}",
            create(user=ACCOUNT),
            True,
        ),
        "operation": ("{operations: [CREATE]}", create(), True),
        "other operation": ("{operations: [CREATE]}", update(pod(), pod()), False),
        "everything must hold": ("{namespaces: [team-a], subjects: [{kind: User, name: bob}]}", create(), False),
        "a class lies in no namespace": ("{namespaces: [x]}", define("c", 1), True),
        "nor under its labels": ("{namespaceSelector: {matchLabels: {x: y}}}", define("c", 1), True),
        "but someone defines it": ("{subjects: [{kind: User, name: bob}]}", define("c", 1), False),
    },
)
def test_match_and_exclude(match, request_, expected):
    """A request matches when everything named holds; as an `exclude` the same words keep it out."""
    assert applies(request_, match=match) is expected
    excluded = expected and match != "{}" and not (request_.resource == "priorityclasses" and "namespace" in match)
    assert applies(request_, exclude=match) is not excluded


LABELLED, PLAIN = pod(labels={"a": "b"}), pod()
BY_LABEL = "{objectSelector: {matchLabels: {a: b}}}"
TEAMS = {"match": "{namespaces: ['team-*']}", "exclude": "{namespaces: [team-a]}"}
APPLIES = {
    "a label that stays": ({"match": BY_LABEL}, update(LABELLED, LABELLED), True),
    "taking a label off escapes nothing": ({"match": BY_LABEL}, update(LABELLED, PLAIN), True),
    "a label that is put on": ({"match": BY_LABEL}, update(PLAIN, LABELLED), True),
    "a label that is never there": ({"match": BY_LABEL}, update(PLAIN, PLAIN), False),
    "a label that stays excludes": ({"exclude": BY_LABEL}, update(LABELLED, LABELLED), False),
    "one that is taken off excludes from nothing": ({"exclude": BY_LABEL}, update(LABELLED, PLAIN), True),
    "nor does one that is put on": ({"exclude": BY_LABEL}, update(PLAIN, LABELLED), True),
    "nor one that is never there": ({"exclude": BY_LABEL}, update(PLAIN, PLAIN), True),
    "exclude beats match": (TEAMS, create(), False),
    "elsewhere it does not": (TEAMS, create(namespace="team-b"), True),
    "DELETE is not judged": ({}, create(operation="DELETE"), False),
    "CONNECT is not judged": ({}, create(operation="CONNECT"), False),
    "no operation is not judged": ({}, create(operation=""), False),
    "other resources are not judged": ({}, create(resource="configmaps"), False),
}


@table("parts, request_, expected", APPLIES)
def test_what_a_policy_is_about(parts, request_, expected):
    """Nobody decides by a label in the same update, and what is excluded stays out though it matches."""
    assert applies(request_, **parts) is expected


GLOBS = "a=a *= a*=a a*a=aa *b*=abc a*b*c=a-b-b-c **=x a!ab a*a!a a*b*c!a-c-b *ab*ab!ab a.c!abc"


@pytest.mark.parametrize("row", GLOBS.split())
def test_globs(row):
    """A star stands for any characters, and nothing else is special."""
    pattern, equal, name = re.split("([=!])", row)
    assert name_matcher([pattern])(name) is (equal == "=")


def test_globs_stay_fast():
    """Many stars against a long name take no time."""
    assert not name_matcher(["a*" * 60 + "b"])("a" * 5000)


SHARED = "a=a a*=*b online*=online *= a*c=ab* a!b a*!b* online-*!online *-x!a-*-y"


@pytest.mark.parametrize("row", SHARED.split())
def test_globs_that_share_a_name(row):
    """Whether any name matches two globs is found without trying names."""
    one, equal, other = re.split("([=!])", row)
    assert intersect(one, other) is intersect(other, one) is (equal == "=")


def test_literal_prefix():
    """What every match of a glob begins with."""
    assert [literal_prefix(glob) for glob in ("team-*", "*", "a")] == ["team-", "", "a"]


REQUESTS = st.builds(
    lambda name, value, who, space, found: (
        create(pod(name, labels=found), namespace=space, user=user(who[0], *who[1]), priority=value)
        if space
        else define(name, value, user=user(who[0], *who[1]))
    ),
    st.sampled_from(CLASS_NAMES),
    st.sampled_from([-60, -1, 0, 60, 61, 200]),
    users,
    st.sampled_from(["", *NAMESPACES]),
    labels,
)


@given(policy_sets(), REQUESTS)
def test_an_index_changes_no_verdict(policies, request):
    """Every policy asked by itself says what all of them say together."""
    one_by_one = {}
    for row in policies.priority:
        one_by_one |= outcomes(Engine(Policies(priority=(row,), preemption=policies.preemption)), request)
    assert outcomes(Engine(policies), request) == one_by_one


@pytest.mark.slow
def test_cost_hardly_grows_with_rules_that_do_not_match():
    """A thousand policies for other namespaces cost less than four times what ten cost."""

    def cost(count):
        rows = [
            rules("{name: r, priorityClasses: {deny: ['*']}}", match=f"{{namespaces: [other-{n}]}}")
            for n in range(count)
        ]
        judging, request = engine(*rows), create(pod("c"))
        best = float("inf")
        for _ in range(20):
            began = time.process_time()
            for _ in range(100):
                judging.judge(request)
            best = min(best, time.process_time() - began)
        return best

    assert cost(1000) < 4 * cost(10)
