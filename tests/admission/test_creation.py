"""What the webhook records of a new pod: what policies select by, and by what it names its group."""

from typing import Any

import msgspec
import pytest

from tests.admission.builders import ask, judged, make_context, make_pod, make_review, mutated, patch_of, response
from tests.policy.builders import document, policies, table
from webhook.kube.json_patch import apply_json_patch
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.values import CREATION, GIVEN, MARK

SPEC = {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}
JOB_SET, VOLCANO = "jobset.sigs.k8s.io/jobset-name", "scheduling.k8s.io/group-name"


def policy(*rows: str) -> PreemptionPolicy:
    """A PreemptionPolicy with these parts."""
    spec = "\n".join(["preemptors: {priorityClasses: [high]}", *rows])
    return policies(document(spec, "PreemptionPolicy")).preemption[0]


ABSENT = '{"labels":{},"annotations":{},"absent":["tier"]}'
BY_TIER = "victims: {pairs: [{victims: {labels: {matchLabels: {tier: batch}}}}]}"
BOTH_SIDES = (
    "victims: {pairs: [{preemptors: {labels: {matchLabels: {tier: a}}},"
    " victims: {labels: {matchExpressions: [{key: zone, operator: DoesNotExist}]}}}]}"
)
BY_MARK = BY_TIER.replace("tier: batch", f"{MARK}: a")


def recorded(by: PreemptionPolicy, pod: dict[str, Any]) -> str | None:
    """The record on the pod after mutation, which changes nothing a second time, and which validation lets in."""
    context = make_context(policies=(by,))
    result = mutated(context, pod)
    assert judged(context, result)["allowed"] is True
    return (result["metadata"].get("annotations") or {}).get(CREATION)


@table(
    "by, meta, record",
    {
        "no policy reads any of it": ([], {"labels": {"tier": "batch", JOB_SET: "a"}}, None),
        "a victim's label": ([BY_TIER], {"labels": {"tier": "batch", "app": "x"}}, {"labels": {"tier": "batch"}}),
        "a label that the pod does not have": ([BY_TIER], {}, {"absent": ["tier"]}),
        "labels of both sides of a pair": (
            [BOTH_SIDES],
            {"labels": {"zone": "z"}},
            {"labels": {"zone": "z"}, "absent": ["tier"]},
        ),
        "the label of a rate": (
            ["limits: {perLabel: {label: team, evictions: 1}}"],
            {"labels": {"team": "a"}},
            {"labels": {"team": "a"}},
        ),
        "what names a group": (
            ["groups: {disruption: Never}"],
            {"labels": {JOB_SET: "a"}, "annotations": {VOLCANO: "g"}},
            {"labels": {JOB_SET: "a"}, "annotations": {VOLCANO: "g"}},
        ),
        "no group": (["groups: {disruption: Group}"], {}, {}),
        "no name of a group": (["groups: {disruption: Group}"], {"annotations": {VOLCANO: '"}\\ x'}}, {}),
        "the mark, protected anyway": ([BY_MARK], {}, {}),
    },
)
def test_what_is_recorded(by, meta, record):
    """The labels that the policies read, those that are absent by name, and all that names a group; nothing else."""
    text = recorded(policy(*by), make_pod(meta=meta, **SPEC))
    whole = {"labels": {}, "annotations": {}, "absent": []}
    assert (text and msgspec.json.decode(text)) == (None if record is None else whole | record)


@pytest.mark.parametrize("by", [[BY_TIER], []], ids=["with a record", "without"])
def test_a_record_that_a_client_sends_is_replaced(by):
    """A copied manifest carries the record of another pod, and a forged one is no different."""
    pod = make_pod(meta={"annotations": {CREATION: '{"labels":{"tier":"batch"}}'}}, **SPEC)
    assert recorded(policy(*by), pod) == (ABSENT if by else None)


def test_labels_and_groups_of_running_pods_change_freely():
    """Rollouts, meshes and JobSet relabel running pods: nobody is refused for what policies select by."""
    context = make_context(policies=(policy(BY_TIER, "groups: {disruption: Never}"),))
    record = {"annotations": {CREATION: '{"absent":["tier"]}', GIVEN: "{}"}}
    old = make_pod(meta=record, **SPEC)
    new = make_pod(meta={**record, "labels": {"tier": "batch", JOB_SET: "a"}}, **SPEC)
    for more in ({}, {"subResource": "status"}):
        assert judged(context, new, old, **more)["allowed"] is True


def test_a_pod_without_metadata_gets_its_record_whatever_its_class():
    """The patch can be applied, also if the priority is left for validation."""
    sent = {"kind": "Pod", "apiVersion": "v1", "spec": {"priorityClassName": "ghost"}}
    body = make_review(make_pod())
    body["request"]["object"] = sent
    patch = patch_of(response(ask(make_context(policies=(policy(BY_TIER),)), "mutate", body)))
    assert apply_json_patch(sent, patch) == {**sent, "metadata": {"annotations": {CREATION: ABSENT}}}
