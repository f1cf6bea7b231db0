"""Pods of the system without the Priority plugin: they end as under the plugin, case by case."""

import copy
from itertools import product
from typing import Any

import pytest

from tests.admission.builders import (
    ask,
    make_class,
    make_context,
    make_pod,
    make_policy,
    make_review,
    make_rule,
    manage,
    patch_of,
    response,
)
from tests.native.apiserver import priority_plugin
from webhook.kube.json_patch import apply_json_patch

HIGH = make_class("high", 100)
NEVER = make_class("never", 7, never=True)
DEFAULTS = {
    "no default": (),
    "a default": (make_class("std", 10, default=True),),
    "a default of 0 that is Never": (make_class("low", 0, never=True, default=True), make_class("std", 10)),
}
NAMES = (None, "high", "never", "std", "low", "ghost")
PRIORITIES = (None, 0, 10, 100)
POLICIES = (None, "PreemptLowerPriority", "Never")
CASES = list(product(DEFAULTS, NAMES, PRIORITIES, POLICIES))


POLICIES_IN_FORCE = (make_policy("all", make_rule("default", default_priority_class="never")), manage(high="never"))
"""Policies that hold for everybody, and say nothing about pods of the system."""


def outcome(classes: Any, pod: dict[str, Any]) -> dict[str, Any] | None:
    """The spec that giveway's mutation makes and its validation lets in; None if it is refused."""
    context = make_context(*classes, policies=POLICIES_IN_FORCE)
    obj = apply_json_patch(pod, patch_of(response(ask(context, "mutate-priority", make_review(pod)))))
    return obj["spec"] if response(ask(context, "validate-priority", make_review(obj)))["allowed"] else None


@pytest.mark.parametrize("default", DEFAULTS)
def test_pods_of_the_system_end_as_under_the_plugin(default):
    """Every class, value and preemption policy that a pod can carry: the same spec is stored, or the pod is refused."""
    classes = (HIGH, NEVER, *DEFAULTS[default])
    different = []
    for _, name, priority, policy in (case for case in CASES if case[0] == default):
        fields = {"priorityClassName": name, "priority": priority, "preemptionPolicy": policy}
        pod = make_pod(**{field: value for field, value in fields.items() if value is not None})
        pod["metadata"]["namespace"] = "kube-system"
        asked = {"object": copy.deepcopy(pod)}
        refused = priority_plugin(asked, {one.metadata.name: one for one in classes})
        wanted = None if refused else asked["object"]["spec"]
        found = outcome(classes, pod)
        if found != wanted:
            different.append((name, priority, policy, found, wanted))
    assert not different


def test_the_cases_are_all_that_there_are():
    """Three clusters, six names, four values, three policies."""
    assert len(CASES) == 216
