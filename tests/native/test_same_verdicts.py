"""The webhook and the compiled policies say the same: of every PolicyTest, every recorded review, and at random."""

import copy
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from tests.native.comparing import SETTINGS, Both, agreed, assert_same, forged, pod_request
from tests.native.strategies import (
    CLASS_NAMES,
    KEYS,
    NAMESPACES,
    NOW,
    annotation_sets,
    clusters,
    labels,
    pods,
    policy_sets,
    users,
)
from webhook.admission.policytest import find
from webhook.native.compiler import compile_policies
from webhook.native.objects import Settings
from webhook.policy.evaluation.reads import reads_on_update
from webhook.policy.files.loading import load_or_raise
from webhook.policy.model.policies import Policies
from webhook.policy.model.priority import PriorityPolicy
from webhook.policy.model.values import DECISION, GIVEN, MARK, OWN_ANNOTATIONS, PLAN

POLICIES = Path(__file__).parents[2] / "policies"
SETS = [POLICIES, POLICIES / "examples" / "teams", POLICIES / "examples" / "co-location"]
JUDGED = ("Pod", "PriorityClass", "Binding")
WEBHOOK_ONLY = {POLICIES / "examples" / "shields": "shields/grace-with-an-end"}
"""Sets with rules that the API server cannot enforce, and the rule that `giveway compile` names."""
CASES = [
    pytest.param(file, test, case, id=f"{test.metadata.name}: {case.name}")
    for file, _, test in find([POLICIES])
    for case in test.spec.cases
    if (case.request.object or case.request.old_object)["kind"] in JUDGED and case.request.operation != "DELETE"
    if file.parents[1] not in WEBHOOK_ONLY
]
"""Templates of workloads are the webhook's alone: the API server judges their pods."""
RECORDED = (
    Path(__file__).parents[1] / "clusters" / "embedded" / "admission_chain" / "data" / "admission-reviews.jsonl.gz"
)
REVIEWS = [json.loads(line) for line in gzip.decompress(RECORDED.read_bytes()).splitlines()]


def is_judged(request):
    """Whether policies say anything about a recorded request."""
    known = (request["object"] or {}).get("kind") in JUDGED and request.get("subResource", "") != "eviction"
    return known and request["operation"] in ("CREATE", "UPDATE")


_BOTH: dict[str, Both] = {}


def both_of(file, test):
    """The policies of a PolicyTest in both forms, made once."""
    directory = (file.parent / test.spec.policies).resolve()
    key = f"{directory} {test.spec.objects}"
    if key not in _BOTH:
        _BOTH[key] = Both(load_or_raise(directory), test.spec.objects)
    return _BOTH[key]


@pytest.mark.parametrize(("file", "test", "case"), CASES)
def test_policy_tests(file, test, case):
    """Pods and PriorityClasses of the tests beside the policies; templates of workloads are the webhook's alone."""
    request = case.request
    obj = request.object or request.old_object
    both = both_of(file, test)
    asked = pod_request(obj, user=request.user, groups=request.groups)
    if request.operation == "UPDATE":
        results = both.validate({**asked, "operation": "UPDATE", "oldObject": request.old_object})
    else:
        results = both.create(asked)
    assert_same(*results)
    if case.phase == "both":
        refused = results[1].denied or results[1].failed or results[1].refused_in_tree
        assert bool(refused) == (case.expect.verdict == "deny")


@pytest.mark.parametrize(("directory", "rule"), WEBHOOK_ONLY.items())
def test_a_rule_for_the_webhook_alone_is_named(directory, rule):
    """What the comparison leaves out is what compiling says that it cannot express."""
    compiled = compile_policies(load_or_raise(directory), [], SETTINGS, 0.0)
    assert [one.rule for one in compiled.inexpressible] == [rule]


@pytest.mark.parametrize("directory", SETS, ids=lambda path: path.name)
@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=f"{row['name']}-{row['plugin']}") for row in REVIEWS if is_judged(row["review"]["request"])],
)
def test_recorded_reviews(row, directory):
    """What a real API server sent, judged by the shipped policies and by both examples.

    Without its Priority plugin nothing fills in priorities natively, and every pod is refused.
    """
    request = row["review"]["request"]
    obj = request["object"] or {}
    subresource = request.get("subResource", "")
    key = str(directory)
    if key not in _BOTH:
        namespace = {"kind": "Namespace", "metadata": {"name": "team-a"}}
        made = [one["review"]["request"]["object"] for one in REVIEWS if one["plugin"] and "-CREATE-" in one["name"]]
        known = {one["metadata"]["name"]: one for one in made if one["kind"] == "PriorityClass"}
        _BOTH[key] = Both(load_or_raise(directory), [namespace, *known.values()])
    both = _BOTH[key]
    if not row["plugin"] and obj["kind"] == "Pod":
        _, native = both.validate(request)
        assert any("builtin/priority-resolved" in text for text in native.denied)
        return
    mutating = request["operation"] == "CREATE" and row["name"].startswith("mutate") and not subresource
    assert_same(*(both.create(request) if mutating else both.validate(request)))


# GIVEWAY_RANDOM=400 draws that many examples for each test; the gate draws a few.
KEPT = Settings(namespace=SETTINGS.namespace, reconciler=SETTINGS.reconciler, kept=True)
"""Somebody compiles again when an exception ends, so that exceptions hold for changes, too."""
often = settings(
    max_examples=int(os.environ.get("GIVEWAY_RANDOM") or 15),
    phases=(Phase.generate,),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def counts_own_annotations(policies: Policies, pod: dict[str, Any]) -> bool:
    """Whether a policy counts annotations and the pod brings some of giveway's own (docs/native-policies.md)."""
    counts = any("annotations.size()" in one.expression for policy in policies.priority for one in policy.conditions)
    return counts and not {*OWN_ANNOTATIONS}.isdisjoint(pod["metadata"].get("annotations", {}))


@st.composite
def forms(draw: Any) -> Both:
    """A policy set in both forms over a cluster, which stays as it is."""
    return Both(draw(policy_sets()), draw(clusters()), now=NOW, settings=KEPT)


def request(obj: dict[str, Any], who: tuple[str, tuple[str, ...]], **more: Any) -> dict[str, Any]:
    return pod_request(obj, user=who[0], groups=who[1], **more)


@often
@given(forms(), pods(), users)
def test_new_pods(both, pod, who):
    """Mutation, the Priority plugin and validation in a row."""
    assume(not counts_own_annotations(both.policies, pod))
    assert_same(*both.create(request(pod, who)))


@often
@given(forms(), pods(), users)
def test_new_pods_beside_the_webhook(both, pod, who):
    """As a backstop: what both fill in is what the webhook fills in, and either judges it as the webhook alone does."""
    assume(not counts_own_annotations(both.policies, pod))
    alone, webhook, native = both.beside(request(pod, who))
    assert_same(alone, webhook)
    assert_same(webhook, native)


@often
@given(forms(), pods(), pods(), users, st.sampled_from(["", "status"]), st.booleans())
def test_changes_of_pods(both, old, new, who, subresource, going):  # noqa: PLR0917 - what hypothesis draws
    """An update of a pod or of its status; of rules by expression those whose policy reads what changed.

    Of a pod that is being deleted the protected keys are judged, as in its status.
    """
    if going:
        old["metadata"]["deletionTimestamp"] = new["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    new["spec"].pop("priorityClassName", None)
    new["spec"] |= {key: value for key, value in old["spec"].items() if key == "priorityClassName"}
    asked = request(new, who, operation="UPDATE", oldObject=old, subResource=subresource)
    webhook, native = both.validate(asked)
    if subresource or going:
        if subresource and who[0] == SETTINGS.reconciler:
            assert not native.denied  # its writes never reach the webhook
        else:
            assert native.denied == webhook.denied
        return
    unread = {policy.name for policy in both.policies.priority if not _reads(policy, old, new)}
    if webhook.failed:  # an expression of a policy did; one that is not asked natively cannot
        assert native.failed or unread
        return
    assert native.denied <= webhook.denied
    for text in webhook.denied - native.denied:
        assert any(f"rule {name}/" in text for name in unread), text


def _reads(policy: PriorityPolicy, old: Any, new: Any) -> bool:
    reads = reads_on_update(Policies(priority=(policy,)))
    changed = {"spec": old["spec"] != new["spec"]}
    changed |= {part: old["metadata"].get(part) != new["metadata"].get(part) for part in ("labels", "annotations")}
    if any(changed.get(part, True) for part in reads.parts):
        return True
    return any(
        old["metadata"].get("labels", {}).get(key) != new["metadata"].get("labels", {}).get(key)
        for key in reads.labels - {MARK}
    )


@often
@given(forms(), annotation_sets, labels, users, st.sampled_from(NAMESPACES[:3]))
def test_bindings(both, annotations, found, who, namespace):
    """A Binding that carries protected keys, or none."""
    meta = {"name": "a", "namespace": namespace, "annotations": annotations, "labels": found}
    agreed(both.validate(request({"kind": "Binding", "metadata": meta}, who)))


@often
@given(forms(), st.sampled_from(CLASS_NAMES[:5]), st.integers(-20, 180), users, st.booleans())
def test_new_classes(both, name, value, who, generated):
    """A PriorityClass, under a name of its own or a generated one."""
    meta = {"generateName": name[:3]} if generated else {"name": name}
    assert_same(*both.create(request({"kind": "PriorityClass", "metadata": meta, "value": value}, who)))


@often
@given(policy_sets(), clusters(), clusters(), users)
def test_changes_of_classes(policies, objects, others, who):
    """A PriorityClass that is applied again, with another value, description or annotation."""
    names = {one["metadata"]["name"]: one for one in others if one["kind"] == "PriorityClass"}
    both = Both(policies, objects, now=NOW, settings=KEPT)
    for old in (one for one in objects if one["metadata"]["name"] in names):
        asked = request(names[old["metadata"]["name"]], who, operation="UPDATE", oldObject=old)
        assert_same(*both.create(asked))


OWNERS = [[], *([{"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": "u"}] for name in ("a", "b"))]


@often
@given(
    policy_sets(),
    clusters(),
    users | st.just(("system:serviceaccount:kube-system:generic-garbage-collector", ())),
    st.sampled_from(OWNERS),
    st.sampled_from(OWNERS),
    st.sampled_from(["deleted", "going", "there"]),
    st.sampled_from([None, *KEYS]),
)
def test_classes_that_go(policies, objects, who, before, after, how, key):  # noqa: PLR0917 - what hypothesis draws
    """A PriorityClass that is deleted, or changed while it goes, or that gets an owner that may not exist."""
    both = Both(policies, objects, now=NOW, settings=KEPT)
    for old in (one for one in objects if one["kind"] == "PriorityClass"):
        old["metadata"]["ownerReferences"] = before
        new = copy.deepcopy(old)
        new["metadata"]["ownerReferences"] = after
        if how == "going":
            old["metadata"]["deletionTimestamp"] = new["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if key is not None:
            new["metadata"].setdefault("annotations", {})[key] = "true"
        change = {"operation": "UPDATE"} if how != "deleted" else {"operation": "DELETE", "object": None}
        assert_same(*both.validate(request(new, who, oldObject=old, **change)))


@often
@given(forms(), pods(), users, st.sampled_from([*CLASS_NAMES, ""]), st.sampled_from([None, *KEYS]))
def test_called_again_after_somebody_changed_the_class(both, pod, who, name, key):
    """What was given follows the class that another webhook sets, and what that webhook itself set stays."""
    assume(not counts_own_annotations(both.policies, pod))

    def meddle(obj: dict[str, Any]) -> dict[str, Any]:
        changed = copy.deepcopy(obj)
        spec = changed["spec"]
        for field in ("priorityClassName", "priority", "preemptionPolicy"):
            spec.pop(field, None)
        if name:
            spec["priorityClassName"] = name
        if key is not None:
            changed["metadata"].setdefault("annotations", {})[key] = "set by another"
        return changed

    webhook, native = both.create(request(pod, who), meddle)
    if forged(native.object):  # whether its pod still has a record then differs (docs/native-policies.md)
        for found in (webhook, native):
            found.object.get("metadata", {}).get("annotations", {}).pop(GIVEN, None)
    assert_same(webhook, native)
    annotations = native.object.get("metadata", {}).get("annotations", {})
    assert not {PLAN, DECISION} & annotations.keys()
    if GIVEN in annotations:
        assert annotations[GIVEN].get("class", "") == native.object["spec"].get("priorityClassName", "")


@often
@given(policy_sets(), clusters(), clusters(), pods(claiming=False), users)
def test_a_table_that_is_old_refuses_nobody(policies, before, objects, pod, who):
    """Classes were made, deleted and changed since: what giveway filled in is accepted, also beside the webhook."""
    assume(not counts_own_annotations(policies, pod))
    for key in (*KEYS, GIVEN):
        pod["metadata"].get("annotations", {}).pop(key, None)
    both = Both(policies, objects, now=NOW, settings=KEPT, compiled_for=before)
    asked = request(pod, who)
    webhook, native = both.create(asked)
    alone, _, beside = both.beside(asked)
    assert native.refused_in_tree == webhook.refused_in_tree == beside.refused_in_tree
    for found, against in ((native, webhook), (beside, alone)):
        assert not {text for text in found.denied - against.denied if text.startswith("annotation ")}
