"""The webhook and the compiled policies judge every PolicyTest case and every recorded review alike."""

import gzip
import json
from pathlib import Path

import pytest

from tests.native.comparing import Both, assert_same, pod_request
from webhook.admission.policytest import find
from webhook.native.compiler import compile_policies
from webhook.native.objects import Settings
from webhook.policy.files.loading import load_or_raise

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
    compiled = compile_policies(
        load_or_raise(directory), [], Settings(namespace="giveway-system", reconciler="giveway"), 0.0
    )
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
