"""Policies about namespaces by their labels: the API server gives expressions no namespace in match conditions."""

import pytest

from tests.native import apiserver
from tests.native.comparing import Both, pod_request
from tests.policy.builders import engine, rules, table
from webhook.native.objects import (
    CompiledCondition,
    Settings,
    Validation,
    constraints,
    mutating_policy,
    validating_policy,
)

BAND = "{name: band, reserve: {from: 900000000, to: 1000000000, use: [{namespaces: [ingress]}]}}"
DEFAULT = "{name: default, defaultPriorityClass: standard}"
IN_TEAMS = "{namespaceSelector: {matchLabels: {team: '1'}}}"
OBJECTS = [
    {"kind": "PriorityClass", "metadata": {"name": "huge"}, "value": 950000000},
    {"kind": "PriorityClass", "metadata": {"name": "standard"}, "value": 100},
    {"kind": "Namespace", "metadata": {"name": "team-a", "labels": {"team": "1"}}},
    {"kind": "Namespace", "metadata": {"name": "sandbox", "labels": {"sandbox": "1"}}},
]


@table(
    "spec, refused",
    {
        "exclude": (rules(BAND, exclude="{namespaceSelector: {matchLabels: {sandbox: '1'}}}"), "team-a"),
        "match": (rules(BAND, match=IN_TEAMS), "team-a"),
        "a condition": (
            rules(BAND, conditions="[{name: c, expression: \"'team' in namespaceObject.metadata.labels\"}]"),
            "team-a",
        ),
        "a condition that guards itself": (
            rules(
                BAND,
                conditions="[{name: c, expression: \"namespaceObject != null && 'team' in"
                ' namespaceObject.metadata.labels"}]',
            ),
            "team-a",
        ),
        "a condition that fails beside one that is false": (
            rules(
                BAND,
                conditions="[{name: a, expression: 'object.spec.missing == 1'},"
                " {name: b, expression: \"!('team' in namespaceObject.metadata.labels)\"}]",
            ),
            "sandbox",
        ),
    },
)
def test_a_range_is_held_where_the_policy_applies_and_nowhere_else(spec, refused):
    """The namespaces that are meant are refused by the rule and not by an expression that fails; others pass."""
    both = Both(engine(spec).policies, OBJECTS)
    assert not both.compiled.inexpressible
    for namespace in ("team-a", "sandbox"):
        for name in ("huge", "standard"):
            meta = {"name": "a", "namespace": namespace}
            body = {"kind": "Pod", "metadata": meta, "spec": {"containers": [], "priorityClassName": name}}
            webhook, native = both.create(pod_request(body))
            assert (native.denied, native.failed) == (webhook.denied, webhook.failed)
            assert bool(native.denied or native.failed) == (namespace == refused and name == "huge")


def test_a_default_by_the_labels_of_the_namespace():
    """What fills in reads the namespace where the API server gives it."""
    both = Both(engine(rules(DEFAULT, match=IN_TEAMS)).policies, OBJECTS)
    for namespace, given in (("team-a", "standard"), ("sandbox", None)):
        body = {"kind": "Pod", "metadata": {"name": "a", "namespace": namespace}, "spec": {"containers": []}}
        webhook, native = both.create(pod_request(body))
        assert native.object == webhook.object
        assert native.object["spec"].get("priorityClassName") == given


NEW_PODS = constraints(Settings(namespace="giveway-system", reconciler=""), ["pods"], ["CREATE"])


def test_no_match_condition_can_read_the_namespace():
    """Whoever compiles one gets an error, not a policy that refuses every pod."""
    reads = CompiledCondition("c", "'a' in namespaceObject.metadata.labels")
    with pytest.raises(ValueError, match="match condition c reads namespaceObject"):
        mutating_policy("m", [], description="", constraints=NEW_PODS, conditions=[reads], patch="[]")


@pytest.mark.parametrize("expression", ["namespaceObject == null", "request.operation == 'CREATE'"])
def test_the_stand_in_withholds_the_namespace_from_match_conditions(expression):
    """As the API server does: what guards itself against null there is always taken the other way."""
    refusing = Validation("p/r", "namespaceObject.metadata.name == 'a'", "no")
    made = validating_policy("p", "p", "enforce", constraints=NEW_PODS, validations=[refusing])
    made[0]["spec"]["matchConditions"] = [{"name": "c", "expression": expression}]
    body = {"kind": "Pod", "metadata": {"name": "a", "namespace": "team-a"}, "spec": {}}
    namespaces = {"team-a": {"metadata": {"name": "team-a"}}}
    found = apiserver.validate(made, pod_request(body), namespaces)
    assert found.messages("Deny") == ["no"]
