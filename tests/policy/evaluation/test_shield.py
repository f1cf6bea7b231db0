"""Who may set, change or remove the preemptibility annotations (docs/semantics.md C5)."""

import pytest

from tests.policy.builders import (
    create,
    deployment,
    engine,
    only_message,
    outcomes,
    pod,
    priority_class,
    rules,
    update,
    user,
)
from webhook.policy.model.values import CAN_BE_PREEMPTED as KEY
from webhook.policy.model.values import PROTECTION_DURATION

NONE = rules("{name: x, defaultPriorityClass: standard}")
LEADS = f"{{name: s, protectAnnotations: {{keys: [{KEY}], allow: {{subjects: [{{kind: Group, name: leads}}]}}}}}}"
LEAD = user("lena", "leads")


def change(before, after, key=KEY, **more):
    """The UPDATE of a pod that changes one annotation."""
    return update(
        pod(annotations={} if before is None else {key: before}),
        pod(annotations={} if after is None else {key: after}),
        **more,
    )


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        pytest.param(None, "true", 'may not be set to "true"', id="set"),
        pytest.param("true", "false", 'may not be changed from "true" to "false"', id="changed"),
        pytest.param("true", None, 'may not be removed (it is "true")', id="removed"),
    ],
)
@pytest.mark.parametrize("key", [KEY, PROTECTION_DURATION])
def test_nobody_changes_a_running_pod(before, after, words, key):
    """Without a policy nobody may change a preemptibility annotation of a pod that exists."""
    verdicts = engine(NONE).judge(change(before, after, key, user=user("root", "system:masters")))
    assert [(verdict.id, verdict.outcome, verdict.denies) for verdict in verdicts] == [("builtin/shield", "deny", True)]
    assert words in verdicts[0].message


def test_everyone_may_at_create():
    """Without a policy everyone may say at CREATE whether a pod can be preempted."""
    assert outcomes(engine(NONE), create(pod(annotations={KEY: "true"}))) == {}


def test_other_changes_pass():
    """Kubelets and controllers update pods all the time; only the protected keys matter."""
    request = update(pod(annotations={KEY: "true"}), pod(annotations={KEY: "true", "x": "y"}, labels={"a": "b"}))
    assert outcomes(engine(rules(LEADS)), request) == {}


def test_further_spellings_are_shielded_when_a_policy_reads_them():
    """A key that a PreemptionPolicy reads is protected like Gödel's."""
    preemption = "preemptors: {priorityClasses: [a]}\nvictims: {annotations: {preemptible: [volcano.sh/preemptable]}}"
    request = change(None, "true", "volcano.sh/preemptable")
    assert outcomes(engine(NONE), request) == {}
    assert outcomes(engine(NONE, preemption=preemption), request) == {"builtin/shield": "deny"}


def test_a_policy_gives_the_right():
    """A rule that allows someone replaces the built-in one for its keys."""
    judging = engine(rules(LEADS))
    assert outcomes(judging, change("true", "false", user=LEAD)) == {"p/s": "allow"}
    assert outcomes(judging, change("true", "false")) == {"p/s": "deny"}
    assert outcomes(judging, change(None, "5", PROTECTION_DURATION, user=LEAD)) == {"builtin/shield": "deny"}


def test_rights_add_up():
    """With two rules that enforce, one that allows suffices."""
    judging = engine(rules(LEADS), rules(LEADS.replace("leads", "owners")))
    assert outcomes(judging, change("true", "false", user=user("o", "owners"))) == {"p2/s": "allow"}
    assert outcomes(judging, change("true", "false")) == {"p/s": "deny", "p2/s": "deny"}


def test_rules_on_trial_give_nothing():
    """A rule under warn or audit reports, and leaves what holds without it."""
    judging = engine(rules(LEADS, enforcement="warn"))
    assert outcomes(judging, change("true", "false", user=LEAD)) == {"p/s": "allow", "builtin/shield": "deny"}
    assert outcomes(judging, change("true", "false")) == {"p/s": "deny", "builtin/shield": "deny"}


def test_a_policy_that_does_not_apply_leaves_the_built_in_rule():
    """A right given in one namespace holds in no other."""
    judging = engine(rules(LEADS, match="{namespaces: [other]}"))
    assert outcomes(judging, change("true", "false", user=LEAD)) == {"builtin/shield": "deny"}


AT_CREATE = LEADS.replace("allow:", "operations: [CREATE, UPDATE], allow:")


def test_protected_at_create():
    """A rule for CREATE refuses pods and templates that set the annotation."""
    judging = engine(rules(AT_CREATE))
    assert outcomes(judging, create(pod(annotations={KEY: "true"}))) == {"p/s": "deny"}
    assert outcomes(judging, create(pod(annotations={KEY: "true"}), user=LEAD)) == {"p/s": "allow"}
    assert outcomes(judging, deployment(pod(annotations={KEY: "true"}))) == {"p/s": "deny"}
    assert outcomes(judging, create(pod())) == {}


def test_what_the_class_says_may_be_said_by_the_pod():
    """The webhook copies the annotation from the class; that is not setting it."""
    given = priority_class("batch", can_be_preempted="true")
    judging = engine(rules(AT_CREATE))
    assert outcomes(judging, create(pod(annotations={KEY: "true"}), priority_class=given)) == {}
    assert outcomes(judging, create(pod(annotations={KEY: "false"}), priority_class=given)) == {"p/s": "deny"}


@pytest.mark.parametrize(
    ("owners", "where"),
    [
        pytest.param([{"kind": "ReplicaSet", "controller": True}], "in the pod template", id="of a controller"),
        pytest.param([{"kind": "Node"}], "in the manifest of a new pod", id="owned"),
        pytest.param(None, "in the manifest of a new pod", id="bare"),
    ],
)
def test_text_tells_where_to_say_it(owners, where):
    """The author learns who may, and where the annotation belongs: a bare pod has no template."""
    request = change("true", "false")
    request.object["metadata"]["ownerReferences"] = owners
    text = only_message(engine(rules(LEADS)), request)
    assert f"rule p/s leaves that to Group leads; set it {where} or on the PriorityClass" in text


def test_annotations_that_are_no_text_count_as_absent():
    """What the API server will refuse anyway does not confuse the rule."""
    request = update(pod(annotations={KEY: "true"}), pod(annotations={KEY: ["true"]}))
    assert outcomes(engine(NONE), request) == {"builtin/shield": "deny"}


def test_a_right_that_only_the_policy_keeps_from_holding_lacks_nothing():
    """The policy's own match is part of the right: where that does not hold, no empty reason is told."""
    allow = "{namespaces: [team-a], objectSelector: {matchExpressions: [{key: x, operator: DoesNotExist}]}}"
    spec = rules(
        f"{{name: s, protectAnnotations: {{keys: [{KEY}], allow: {allow}}}}}",
        match="{subjects: [{kind: Group, name: leads}]}",
    )
    request = change("true", "false", user=user("system:serviceaccount:team-a:bot"))
    assert "()" not in only_message(engine(spec), request)
