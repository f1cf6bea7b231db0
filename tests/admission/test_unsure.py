"""Answers that hinge on what the cache may not know yet say so, and change with what is learned."""

from tests.admission.builders import (
    ask,
    make_class,
    make_context,
    make_pod,
    make_review,
    make_workload,
    manage,
    patch_of,
    policy,
    response,
)
from tests.policy.builders import table
from webhook.admission.context import Context
from webhook.kube.objects.cluster_scoped import Namespace
from webhook.kube.objects.meta import ObjectMeta

PREEMPT = "PreemptLowerPriority"
HIGH = make_class("high", 100)
DEFAULT = make_class("dflt", 3, default=True)
NEW_DEFAULT = {"kind": "PriorityClass", "metadata": {"name": "mine"}, "value": 5, "globalDefault": True}
NONE = {"priority": 0, "preemptionPolicy": PREEMPT}
POLICY_DEFAULT = policy("teams", "{name: default, defaultPriorityClass: batch}")

HINGES = {
    "unknown class, mutation": ("mutate", make_pod(priorityClassName="new"), (), "new"),
    "unknown class, validation": ("validate", make_pod(priorityClassName="new"), (), "new"),
    "unknown class, template": ("validate", make_workload("Job", priorityClassName="new"), (), "new"),
    "stale class, mutation": ("mutate", make_pod(priorityClassName="high", priority=7), (HIGH,), "high"),
    "stale class": ("validate", make_pod(priorityClassName="high", priority=7), (HIGH,), "high"),
    "default deleted meanwhile": ("validate", make_pod(**NONE), (DEFAULT,), "dflt"),
    "other default deleted meanwhile": ("validate", NEW_DEFAULT, (DEFAULT,), "dflt"),
    "policy default not known": ("mutate", make_pod(), (POLICY_DEFAULT,), "batch"),
    "twin": ("mutate", make_pod(priorityClassName="high"), (HIGH, manage(high="high-managed")), "high-managed"),
}


def context_of(*things):
    objects = [thing for thing in things if hasattr(thing, "metadata")]
    return make_context(*objects, policies=tuple(thing for thing in things if thing not in objects))


@table("phase, obj, things, name", HINGES)
def test_an_answer_names_the_class_it_hinges_on(phase, obj, things, name):
    """Nothing is refused, or left undone, for a class that was not looked up live."""
    assert ask(context_of(*things), phase, make_review(obj)).answer.unsure == {("priorityclasses", name)}


def test_an_answer_that_hinges_on_nothing_is_sure():
    """The ordinary case costs no live lookup."""
    context = make_context(HIGH)
    body = make_review(make_pod(priorityClassName="high", priority=100, preemptionPolicy=PREEMPT))
    assert not ask(context, "mutate", body).answer.unsure
    assert not ask(context, "validate", body).answer.unsure


def test_a_namespace_that_is_not_known_is_looked_up():
    """A pod in a namespace made a moment ago is judged by that namespace's labels."""
    body = make_review(make_pod(meta={"namespace": "fresh"}, **NONE))
    assert ask(make_context(), "validate", body).answer.unsure == {("namespaces", "fresh")}


def test_what_is_learned_live_decides():
    """With the live object the same review has another answer, and is sure."""
    context = make_context()
    body = make_review(make_pod(priorityClassName="new", meta={"namespace": "fresh"}))
    fresh = Namespace(metadata=ObjectMeta(name="fresh"))
    live = Context(
        context.engine,
        context.lookup.corrected({"priorityclasses": {"new": make_class("new", 9)}, "namespaces": {"fresh": fresh}}),
    )
    reviewed = ask(live, "mutate", body)
    assert [op["value"] for op in patch_of(response(reviewed))] == [9, PREEMPT]
    assert not reviewed.answer.unsure


def test_a_default_that_is_gone_is_no_default():
    """An overlay that says a class is gone takes it out of the global defaults, and one that it is there adds it."""
    lookup = make_context(DEFAULT).lookup
    assert list(lookup.corrected({"priorityclasses": {"dflt": None}}).default_priority_classes()) == []
    other = make_class("other", 1, default=True)
    assert list(lookup.corrected({"priorityclasses": {"other": other}}).default_priority_classes()) == [DEFAULT, other]
