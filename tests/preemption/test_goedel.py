"""Gödel's rules of who may be a victim, one row a rule."""

import math

import pytest

from tests.cases import table
from tests.preemption.building import outcome, priority_class, rules, victim
from webhook.policy.model.preemption import Protection
from webhook.policy.model.values import CAN_BE_PREEMPTED, PROTECTION_DURATION
from webhook.policy.model.victims import VictimMode

ANNOTATED = "pkg/util/pod/util.go CanPodBePreempted"
BY_CLASS = "pkg/scheduler/framework/plugins: the PriorityClass is asked where the pod says nothing"
WINDOW = "pkg/scheduler/framework/plugins/startrecently"
GUIDE = "quickstart on preemption"

ROWS = [
    # source, pod's annotation, pod's class, class's annotation, protection, started (s ago), may go, rule
    (ANNOTATED, "true", "", None, None, 60, False, "no-priority-class"),
    (ANNOTATED, "true", "low", None, None, 60, True, None),
    (ANNOTATED, "true", "unknown", None, None, 60, True, None),
    (ANNOTATED, "false", "low", "true", None, 60, False, "opt-in"),
    (ANNOTATED, "True", "low", "true", None, 60, False, "opt-in"),
    (ANNOTATED, "yes", "low", "true", None, 60, False, "opt-in"),
    (ANNOTATED, " true", "low", "true", None, 60, False, "opt-in"),
    (BY_CLASS, None, "low", "true", None, 60, True, None),
    (BY_CLASS, "", "low", "true", None, 60, True, None),
    (BY_CLASS, None, "low", "True", None, 60, False, "opt-in"),
    (BY_CLASS, None, "low", "", None, 60, False, "opt-in"),
    (BY_CLASS, None, "low", None, None, 60, False, "opt-in"),
    (BY_CLASS, None, "unknown", None, None, 60, False, "opt-in"),
    (GUIDE, "true", "low", None, "30", 29, False, "protection"),
    (WINDOW, "true", "low", None, "30", 30, True, None),
    (WINDOW, "true", "low", None, "30", 31, True, None),
    (WINDOW, "true", "low", None, "0", 0, True, None),
    (WINDOW, "true", "low", None, "-5", 0, True, None),
    (WINDOW, "true", "low", None, "soon", 0, True, None),
    (WINDOW, "true", "low", None, "30s", 0, True, None),
    (WINDOW, "true", "low", None, "1.5", 0, True, None),
    (WINDOW, "true", "low", None, "+30", 10, False, "protection"),
    (WINDOW, "true", "low", None, "30", None, False, "protection"),
    (WINDOW, "true", "low", None, "9223372036854775807", 10**6, False, "protection"),
    (WINDOW, "true", "low", None, "9223372036854775808", 10, True, "opt-in"),
    (WINDOW, "true", "low", None, None, None, True, None),
]


@pytest.mark.parametrize(
    "row",
    ROWS,
    ids=[f"{row[0]}: pod {row[1]!r} class {row[2]!r}={row[3]!r} window {row[4]} after {row[5]}" for row in ROWS],
)
def test_goedels_rules(row):
    """A pod may go exactly where Gödel lets it go, and otherwise names the rule that keeps it."""
    _, own, class_name, of_class, protection, started, may_go, rule = row
    given = {CAN_BE_PREEMPTED: own, PROTECTION_DURATION: protection}
    says = {key: value for key, value in given.items() if value is not None}
    judged = victim(says=says, priorityClassName=class_name, started=math.inf if started is None else started)
    classes = [priority_class("low", **({} if of_class is None else {CAN_BE_PREEMPTED: of_class}))]
    expected = (["victim"], {}) if may_go else ([], {"victim": f"policy/{rule}"})
    assert outcome([judged], rules(mode=VictimMode.OPT_IN), priorityClasses=classes) == expected


@table(
    "protection, asked, started, may_go",
    ("the default holds without an annotation", Protection(default=60), None, 59, False),
    ("and with one that is no number", Protection(default=60), "soon", 59, False),
    ("but not against an annotation of 0", Protection(default=60), "0", 0, True),
    ("the maximum caps what a pod asks for", Protection(maximum=60), "3600", 61, True),
    ("and leaves that much", Protection(maximum=60), "3600", 59, False),
    ("and caps the default", Protection(default=90, maximum=60), None, 61, True),
)
def test_protection_by_policy(protection, asked, started, may_go):
    """The policy sets the window where a pod sets none, and the longest a pod may ask for."""
    says = {CAN_BE_PREEMPTED: "true"} | ({PROTECTION_DURATION: asked} if asked else {})
    went, _ = outcome([victim(says=says, started=started)], rules(mode=VictimMode.OPT_IN, protection=protection))
    assert bool(went) is may_go
