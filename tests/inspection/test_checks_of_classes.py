"""The checks of `giveway doctor` about PriorityClasses and their values: what they find, and what they leave alone."""

import msgspec
import pytest

from tests.admission.builders import make_class, make_policy, make_rule, manage
from tests.inspection.observing import (
    LOW,
    PREEMPTIBLE,
    PROTECTION,
    found,
    observed,
    severities,
    summary,
)
from webhook.inspection.checks import classes
from webhook.policy.model.match import RequestMatch, Subject
from webhook.policy.model.rules import Definers, Reserve
from webhook.policy.model.victims import PodsMatch, PreemptionPair, Victims

HIGH = make_class("high", 1000)
USES = summary("user", "high", 1000)
SAYS_NO = summary("kept", annotations={PREEMPTIBLE: "false"})
GIVEN = '{"class":"low","copied":{"godel.bytedance.com/can-be-preempted":"true"}}'


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        pytest.param(observed(HIGH, LOW, USES, SAYS_NO), ["warning"], id="past-an-annotation"),
        pytest.param(
            observed(HIGH, LOW, USES, summary(annotations={PREEMPTIBLE: "true", PROTECTION: "60"})),
            ["warning"],
            id="past-a-window",
        ),
        pytest.param(observed(HIGH, LOW, USES, summary()), ["info"], id="past-silence"),
        pytest.param(observed(HIGH, LOW, SAYS_NO), ["info"], id="unused"),
        pytest.param(observed(HIGH, LOW, USES, summary(annotations={PREEMPTIBLE: "true"})), [], id="opted-in"),
        pytest.param(observed(make_class("high", 1000, never=True), LOW, USES, SAYS_NO), [], id="never"),
        pytest.param(observed(make_class("online", 1000), LOW, SAYS_NO), [], id="moved-to-its-twin"),
        pytest.param(observed(HIGH, LOW, USES, SAYS_NO, make_policy("p")), [], id="no-preemption-policy"),
    ],
)
def test_classes_that_preempt_past_protections(cluster, expected):
    """A class is a finding if kube-scheduler evicts for it whom the policies protect; a warning if somebody said so."""
    assert severities(classes.preempting, cluster) == expected


def test_who_uses_a_class_is_named():
    """With the number of pods by namespace."""
    [(_, what)] = found(classes.preempting, observed(HIGH, LOW, USES, SAYS_NO))
    assert "it is used by 1 pod: team-a (1)" in what


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(
            [make_class("online", 5)], "Twin giveway-online of PriorityClass online does not exist.", id="missing"
        ),
        pytest.param(
            [make_class("online", 5), make_class("giveway-online", 6, never=True)],
            "has value 6 and preemptionPolicy Never; it needs value 5 and Never.",
            id="other-value",
        ),
        pytest.param(
            [make_class("online", 5), make_class("giveway-online", 5)], "preemptionPolicy PreemptLower", id="not-never"
        ),
        pytest.param(
            [make_class("giveway-x", 5)], "its preemptionPolicy is PreemptLowerPriority", id="managed-not-never"
        ),
        pytest.param([make_class("online", 5), make_class("giveway-online", 5, never=True)], None, id="right"),
        pytest.param([], None, id="no-original"),
    ],
)
def test_twins(given, expected):
    """A twin exists, with the value of its class and Never."""
    texts = [what for _, what in found(classes.twins, observed(*given))]
    assert expected is None or any(expected in text for text in texts)
    assert bool(texts) == (expected is not None)


COPIES = make_policy("p", make_rule("copy", copy_annotations=(PREEMPTIBLE,)))


@pytest.mark.parametrize(
    ("preemptible", "annotations", "drifts"),
    [
        pytest.param("true", {PREEMPTIBLE: "true"}, False, id="same"),
        pytest.param("true", {}, True, id="absent"),
        pytest.param("false", {PREEMPTIBLE: "true", "giveway.dev/given": GIVEN}, True, id="copied-and-changed-since"),
        pytest.param("false", {PREEMPTIBLE: "true"}, False, id="chosen-by-its-author"),
        pytest.param(None, {PREEMPTIBLE: "true", "giveway.dev/given": GIVEN}, True, id="taken-off-the-class"),
        pytest.param(None, {}, False, id="neither"),
    ],
)
def test_drift(preemptible, annotations, drifts):
    """What was copied and is not what the class says today; what an author chose is no drift."""
    own = make_class("low", 10, **({"preemptible": preemptible} if preemptible else {}))
    cluster = observed(own, summary(annotations=annotations), COPIES)
    assert bool(found(classes.drifted, cluster)) is drifts


BAND = make_rule("band", reserve=Reserve(from_=500, to=5000, use=(RequestMatch(namespaces=("ingress",)),)))
LEADS = RequestMatch(subjects=(Subject("Group", "leads"),))
BY_LEADS = make_rule("band", reserve=Reserve(from_=500, to=5000, use=(LEADS,)))
DEFINED_BY_LEADS = make_rule("band", reserve=Reserve(from_=500, to=5000, define=(Definers(subjects=LEADS.subjects),)))


def test_reserved_ranges():
    """Classes that nobody may define there, and pods that may not be there, are errors; what depends is said."""
    cluster = observed(HIGH, LOW, USES, summary("user-2", "high", 1000), make_policy("p", BAND))
    assert found(classes.reserved, cluster) == [
        ("error", "PriorityClass high has value 1000, in a range that rule p/band reserves (refused)."),
        (
            "error",
            "2 pods of priority 1000 (PriorityClass high) in a range that rule p/band reserves: team-a (2) (refused).",
        ),
    ]
    depends = found(classes.reserved, observed(LOW, HIGH, USES, make_policy("p", BY_LEADS)))
    assert depends[1][0] == "info"
    assert [one.fix for one in classes.reserved(observed(HIGH, make_policy("p", DEFINED_BY_LEADS)))] == [
        "Nothing, if it is meant: while the rule holds, only those whom its define names make or delete classes there."
    ]
    assert depends[1][1].endswith("team-a (1) (cannot be judged).")
    assert found(classes.reserved, observed(LOW, summary(), make_policy("p", BAND))) == []


@pytest.mark.parametrize(
    ("priority_class", "why"),
    [
        pytest.param((), "PriorityClass low does not exist", id="gone"),
        pytest.param(
            (make_class("low", 1),),
            "PriorityClass low was made again: its value is 1, and the priority is 10",
            id="made again",
        ),
        pytest.param((make_class("low", 10),), None, id="the same value"),
    ],
)
def test_pods_whose_class_does_not_speak_for_them_are_counted_by_class(priority_class, why):
    """A class that is gone or has another value says nothing of its pods; a pod without a class needs none."""
    unclassed = summary("c", class_name="", priority=0)
    texts = [
        what for _, what in found(classes.silent, observed(summary("a"), summary("b"), unclassed, *priority_class))
    ]
    said = f"2 pods of PriorityClass low for which it does not speak: {why} (team-a (2))."
    assert texts == ([said] if why else [])


SERVED = make_class("giveway-high", 1000, never=True)
PAIRS = Victims(pairs=(PreemptionPair(victims=PodsMatch(namespaces=("team-b",))),))
PAIRED = msgspec.structs.replace(manage("giveway-*"), victims=PAIRS)
MAY_GO = {PREEMPTIBLE: "true"}


@pytest.mark.parametrize(
    ("found_there", "told"),
    [
        pytest.param([SERVED, summary("batch", "batch", -20)], True, id="not opted in"),
        pytest.param([SERVED, summary("batch", "batch", -20, annotations={PREEMPTIBLE: "false"})], True, id="refuses"),
        pytest.param([SERVED, summary("batch", "batch", -20, annotations=MAY_GO)], False, id="may go"),
        pytest.param([SERVED, summary("batch", "batch", -20, annotations=MAY_GO), PAIRED], True, id="in no pair"),
        pytest.param([SERVED, summary("batch", "batch", -10)], False, id="at the cutoff"),
        pytest.param([SERVED, summary("batch", "batch", -20, node="")], False, id="it waits"),
        pytest.param([make_class("high", 1000), summary("batch", "batch", -20)], False, id="no managed class"),
    ],
)
def test_pods_that_cluster_autoscaler_counts_as_gone(found_there, told):
    """Nobody helps a preemptor that fits in the place of pods below -10 which may not be evicted."""
    texts = [what for _, what in found(classes.expendable, observed(*found_there))]
    assert len(texts) == told
    assert all("of PriorityClass batch" in text and "team-a (1)" in text for text in texts)
