"""A second mutating call, after another webhook changed the class: what the first one gave follows the new class."""

from copy import deepcopy
from typing import Any

import jsonpatch
import pytest

from tests.admission.builders import (
    filled,
    judged,
    make_class,
    make_context,
    make_pod,
    manage,
    mutated,
    patch_of,
    policy,
)
from tests.policy.builders import table
from webhook.policy.model.values import (
    CAN_BE_PREEMPTED,
    GIVEN,
    MARK,
    PLAN,
    POD_SCALE_UP_DELAY,
    PROTECTION_DURATION,
)

PREEMPT = "PreemptLowerPriority"
OFFLINE = make_class("offline", 10, never=True, preemptible="true", protection="30")
OTHER = make_class("other", 20, preemptible="false")
PROD = make_class("prod", 1000)
ONLINE, TWIN = make_class("online", 500), make_class("online-managed", 500, never=True)
STANDARD = make_class("standard", 7, default=True)
COPIES = policy("copy", f"{{name: both, copyAnnotations: [{CAN_BE_PREEMPTED}, {PROTECTION_DURATION}]}}")
DEFAULTS = policy("teams", "{name: default, defaultPriorityClass: offline}")
CONTEXT = make_context(
    OFFLINE,
    OTHER,
    PROD,
    ONLINE,
    TWIN,
    STANDARD,
    policies=(COPIES, DEFAULTS, manage("offline", online="online-managed")),
)


def sent(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod with managedFields as the API server computes them from what the client sent."""
    metadata = pod["metadata"]
    fields: dict[str, Any] = {"f:metadata": {}, "f:spec": {f"f:{key}": {} for key in pod["spec"]}}
    for part in ("annotations", "labels"):
        if metadata.get(part):
            fields["f:metadata"][f"f:{part}"] = {f"f:{key}": {} for key in metadata[part]}
    entry = {"manager": "kubectl", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields}
    return {**pod, "metadata": {**metadata, "managedFields": [entry]}}


def reclassed(pod: dict[str, Any], name: str | None, *, numbers: bool = True) -> dict[str, Any]:
    """The pod after another webhook gave it another class; with `numbers` it left priority and policy to others."""
    changed = deepcopy(pod)
    changed["spec"].pop("priorityClassName", None)
    if name is not None:
        changed["spec"]["priorityClassName"] = name
    if numbers:
        for field in ("priority", "preemptionPolicy"):
            changed["spec"].pop(field, None)
    return changed


def refusals(pod: dict[str, Any]) -> list[str]:
    answer = judged(CONTEXT, pod)
    return [] if answer["allowed"] else answer["status"]["message"].split("; ")


def annotations_of(pod: dict[str, Any]) -> dict[str, str]:
    found = pod["metadata"].get("annotations") or {}
    return {key: value for key, value in found.items() if key not in (GIVEN, POD_SCALE_UP_DELAY)}


CASES = {
    "copied, and no class to copy from: taken back": ({}, "prod", {}, None),
    "copied: replaced, and the rest taken back": ({}, "other", {CAN_BE_PREEMPTED: "false"}, None),
    "the same class": ({}, "offline", {CAN_BE_PREEMPTED: "true", PROTECTION_DURATION: "30"}, "managed"),
    "a class that is managed too, with a twin": ({}, "online", {}, "managed"),
    "the user's own stays": ({CAN_BE_PREEMPTED: "true"}, "prod", {CAN_BE_PREEMPTED: "true"}, None),
    "the user's own of two": (
        {PROTECTION_DURATION: "60", "a": "b"},
        "other",
        {PROTECTION_DURATION: "60", "a": "b", CAN_BE_PREEMPTED: "false"},
        None,
    ),
}


@pytest.mark.parametrize(
    ("fields", "numbers"), [(True, True), (True, False), (False, True)], ids=["plugin", "no-plugin", "no-fields"]
)
@table("given, name, annotations, mark", CASES)
def test_what_giveway_gave_follows_the_class(given, name, annotations, mark, fields, numbers):  # noqa: PLR0917
    """After the class changed the pod is as if it had been sent with the new class, and nobody is blamed."""
    pod = make_pod(meta={"annotations": given} if given else {}, priorityClassName="offline")
    first = mutated(CONTEXT, sent(pod) if fields else pod)
    assert first["metadata"]["labels"] == {MARK: "managed"}
    second = mutated(CONTEXT, reclassed(first, name, numbers=numbers))
    assert annotations_of(second) == annotations
    assert (second["metadata"].get("labels") or {}).get(MARK) == mark
    waits = (second["metadata"].get("annotations") or {}).get(POD_SCALE_UP_DELAY)
    assert waits == ("5s" if mark else None)
    expected = CONTEXT.lookup.priority_class("online-managed" if name == "online" else name)
    policy = expected.preemption_policy
    assert (second["spec"]["priority"], second["spec"]["preemptionPolicy"]) == (expected.value, policy)
    assert refusals(second) == []


CONTROLLER = [{"kind": "Rollout", "name": "r", "controller": True}]


@table(
    "pod, name, sets, annotations",
    {
        "a default gives way, also to the global default": (make_pod(), "standard", {}, {}),
        "a value that another webhook changed is its own": (
            make_pod(priorityClassName="offline"),
            "prod",
            {CAN_BE_PREEMPTED: "false"},
            {CAN_BE_PREEMPTED: "false"},
        ),
        "a mark that no client set goes, also from a pod with a controller": (
            make_pod(meta={"ownerReferences": CONTROLLER}, priorityClassName="offline"),
            "prod",
            {},
            {},
        ),
    },
)
def test_the_class_of_another_webhook_counts(pod, name, sets, annotations):
    """Its class stays, and what it says by itself; the rest of what the first call gave goes."""
    first = mutated(CONTEXT, sent(pod))
    assert (first["spec"]["priorityClassName"], first["metadata"]["labels"]) == ("offline", {MARK: "managed"})
    changed = reclassed(first, name)
    changed["metadata"]["annotations"] |= sets
    second = mutated(CONTEXT, changed)
    assert (second["spec"]["priorityClassName"], annotations_of(second)) == (name, annotations)
    assert not second["metadata"].get("labels")
    assert refusals(second) == []


OWN = {CAN_BE_PREEMPTED: "true", "guard.example.com/key": "x"}
FORGED = f'{{"class":"offline","copied":{{"{CAN_BE_PREEMPTED}":"true","guard.example.com/key":"x"}}}}'


@table(
    "record, fields, annotations",
    {
        "a client set it, so it counts for nothing": (FORGED, True, OWN),
        "it is believed about what policies copy": (FORGED, False, {"guard.example.com/key": "x"}),
        **{f"none, but {text[:20]!r}": (text, False, OWN) for text in ("", "null", "[]", '{"class":1}', "{")},
        "a value that is no text": ('{"copied":{"a":1}}', False, OWN),
        "a long one": ("x" * 70_000, False, OWN),
    },
)
def test_a_record_that_is_not_giveways_is_taken_off(record, fields, annotations):
    """By managedFields a client set it; without them it is believed, if it is one, but touches no other annotation."""
    pod = make_pod(meta={"annotations": {**OWN, GIVEN: record}}, priorityClassName="prod")
    found = mutated(CONTEXT, sent(pod) if fields else pod)["metadata"]["annotations"]
    assert {key: text for key, text in found.items() if key != GIVEN or fields} == annotations


def test_long_values_are_recorded_in_short():
    """A copied value of any length is recognised by its digest."""
    text = "x" * 5000
    context = make_context(make_class("long", 5, preemptible=text), PROD, policies=(COPIES,))
    pod = sent(make_pod(priorityClassName="long"))
    first = jsonpatch.apply_patch(pod, patch_of(filled(context, pod)))
    assert first["metadata"]["annotations"][CAN_BE_PREEMPTED] == text
    assert len(first["metadata"]["annotations"][GIVEN]) < 300
    changed = reclassed(first, "prod")
    again = jsonpatch.apply_patch(changed, patch_of(filled(context, changed)))
    assert annotations_of(again) == {}


def test_nothing_is_recorded_where_nothing_was_given():
    """A pod that got no more than its numbers carries no record."""
    assert "annotations" not in mutated(CONTEXT, sent(make_pod(priorityClassName="prod")))["metadata"]


def test_a_pod_without_a_class_that_is_there_carries_no_plan_either():
    """What only the reconciler writes is taken off whatever else is left for validation."""
    pod = make_pod(meta={"annotations": {PLAN: "{}", "a": "b"}}, priorityClassName="ghost")
    assert mutated(CONTEXT, sent(pod))["metadata"]["annotations"] == {"a": "b"}


def test_a_stray_mark_is_taken_off_with_a_warning():
    """A restored pod whose class is not managed any more gets in; who set the mark learns that it does nothing.

    That a mark stays by which a controller may select is in tests/native/test_attacks.py.
    """
    owners = [{**CONTROLLER[0], "controller": False}]
    meta = {"labels": {MARK: "managed", "a": "b"}, "ownerReferences": owners}
    pod = make_pod(meta=meta, priorityClassName="prod")
    answer = filled(CONTEXT, sent(pod))
    assert any("taken off" in warning for warning in answer["warnings"])
    result = mutated(CONTEXT, sent(pod))
    assert result["metadata"]["labels"] == {"a": "b"}
    assert refusals(result) == []


def test_a_deletion_timestamp_in_a_new_pod_escapes_nothing():
    """The API server drops it after mutation; default class and copies hold all the same."""
    result = mutated(CONTEXT, sent(make_pod(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})))
    assert result["spec"]["priorityClassName"] == "offline"
    assert annotations_of(result) == {CAN_BE_PREEMPTED: "true", PROTECTION_DURATION: "30"}
