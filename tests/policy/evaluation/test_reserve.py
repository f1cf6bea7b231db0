"""Reserved ranges: who may define classes in them and who may use them (docs/semantics.md B)."""

import pytest

from tests.policy.builders import (
    create,
    define,
    deployment,
    engine,
    namespace,
    only_message,
    outcomes,
    pod,
    priority_class,
    rules,
    update,
    user,
)

PLATFORM = (
    "{name: band, reserve: {from: 900, to: 1000,"
    " define: [{subjects: [{kind: Group, name: platform}]}, {names: [boot-*]}],"
    " use: [{namespaces: [ingress]}, {namespaceSelector: {matchLabels: {tier: infra}}},"
    " {subjects: [{kind: User, name: root}]},"
    " {subjects: [{kind: ServiceAccount, namespace: ci, name: runner}]}]}}"
)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        pytest.param(899, {}, id="below"),
        pytest.param(900, {"p/band": "deny"}, id="lower end"),
        pytest.param(1000, {"p/band": "deny"}, id="upper end"),
        pytest.param(1001, {}, id="above"),
        pytest.param(None, {}, id="not resolved"),
    ],
)
def test_both_ends_are_reserved(value, said):
    """A range holds both its ends."""
    assert outcomes(engine(rules(PLATFORM)), create(pod(), priority=value)) == said


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(
            create(pod("x", priority=950), priority=950, priority_class=priority_class("x", 950)), id="by class"
        ),
        pytest.param(create(pod(), priority=950, priority_class=priority_class("x", 950)), id="by global default"),
        pytest.param(create(pod(priority=950)), id="raw"),
        pytest.param(deployment(pod("x"), priority=950), id="by a template"),
    ],
)
def test_the_value_counts_however_it_got_there(request_):
    """By class, by default or raw: the value is what is reserved."""
    assert outcomes(engine(rules(PLATFORM)), request_) == {"p/band": "deny"}


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"namespace": "ingress"}, id="namespace"),
        pytest.param({"namespace_object": namespace("team-a", tier="infra")}, id="namespace label"),
        pytest.param({"user": user("root")}, id="user"),
        pytest.param({"user": user("system:serviceaccount:ci:runner")}, id="service account"),
    ],
)
def test_each_right_suffices(more):
    """Rights are alternatives."""
    assert outcomes(engine(rules(PLATFORM)), create(pod(), priority=950, **more)) == {"p/band": "allow"}


def test_text_names_the_range_and_who_may():
    """The author learns value, class, range, rule and who may use it."""
    text = only_message(engine(rules(PLATFORM)), create(pod("x"), priority=950))
    assert text.startswith('priority 950 (PriorityClass "x") lies in the range 900 to 1000, which rule p/band reserves')
    assert "namespace ingress, or namespaces labelled tier=infra, or User root" in text


def test_running_pods_are_left_alone():
    """An update that does not touch the priority passes, whatever the policy says by now."""
    assert outcomes(engine(rules(PLATFORM)), update(pod(priority=950), pod(priority=950, nodeName="n"))) == {}


@pytest.mark.parametrize(
    ("request_", "outcome"),
    [
        pytest.param(define("x", 950), "deny", id="anyone"),
        pytest.param(define("x", 950, user=user("p", "platform")), "allow", id="by group"),
        pytest.param(define("boot-1", 950), "allow", id="by name"),
    ],
)
def test_defining_in_a_range(request_, outcome):
    """A PriorityClass in a reserved range needs the right to define it."""
    assert outcomes(engine(rules(PLATFORM)), request_) == {"p/band": outcome}


def test_names_and_subjects_of_one_right_hold_together():
    """Within one right everything named must hold."""
    judging = engine(
        rules("{name: r, reserve: {from: 1, to: 9, define: {names: [a], subjects: [{kind: User, name: u}]}}}")
    )
    assert outcomes(judging, define("a", 5, user=user("u"))) == {"p/r": "allow"}
    assert outcomes(judging, define("a", 5)) == {"p/r": "deny"}
    assert outcomes(judging, define("b", 5, user=user("u"))) == {"p/r": "deny"}


def test_without_rights_nobody_may():
    """A range with neither define nor use is closed."""
    judging = engine(rules("{name: r, reserve: {from: 1, to: 9}}"))
    assert "reserves for nobody" in only_message(judging, create(pod(), priority=5))
    assert "may be defined by nobody" in only_message(judging, define("x", 5))


def test_changing_a_reserved_class_needs_the_right():
    """What a class in the range says is changed by those who may define it."""
    old = {"metadata": {"name": "x"}, "value": 950}
    request = define("x", 950, operation="UPDATE", old_object=old)
    request.object["metadata"]["annotations"] = {"a": "b"}
    assert outcomes(engine(rules(PLATFORM)), request) == {"p/band": "deny"}


def test_bookkeeping_of_a_reserved_class_passes():
    """Finalizers and managed fields may be written by whoever keeps the books."""
    old = {"metadata": {"name": "x", "resourceVersion": "1"}, "value": 950}
    request = define("x", 950, operation="UPDATE", old_object=old)
    request.object["metadata"] |= {"resourceVersion": "2", "finalizers": ["f"], "managedFields": [{}]}
    assert outcomes(engine(rules(PLATFORM)), request) == {}


def test_a_namespaced_policy_still_reserves_against_definition():
    """A PriorityClass lies in no namespace, so the namespaces of `match` and `exclude` say nothing about it."""
    judging = engine(rules(PLATFORM, match='{namespaces: ["team-*"]}', exclude="{namespaces: [kube-system]}"))
    assert outcomes(judging, define("x", 950)) == {"p/band": "deny"}
    assert outcomes(judging, create(pod(), namespace="other", priority=950)) == {}


@pytest.mark.parametrize("value", ["950", 950.0, True, None, [950]])
def test_values_that_are_no_integers_are_left_to_the_api_server(value):
    """A class whose value is no integer lies in no range."""
    assert outcomes(engine(rules(PLATFORM)), define("x", value)) == {}


def test_deletion_is_never_held_up():
    """An object that is being deleted passes, so that its finalizers can be removed."""
    obj = pod(priority=950)
    obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert outcomes(engine(rules(PLATFORM)), create(obj, priority=950)) == {}
