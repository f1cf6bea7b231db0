"""The shipped policies: safe on any cluster, and kept in order with their documentation."""

import re
import time
from pathlib import Path

import pytest

from tests.policy.builders import create, define, outcomes, pod, priority_class, update, user
from tests.processor_time import within
from webhook.policy.evaluation.engine import Engine
from webhook.policy.example_requests.findings import example_findings
from webhook.policy.files.loading import load, load_texts
from webhook.policy.model.values import CAN_BE_PREEMPTED, PROTECTION_DURATION
from webhook.policy.shapes.findings import Severity
from webhook.preemption.example_pods import example_pod_findings

POLICIES = Path(__file__).parents[2] / "policies"
SETS = [POLICIES, *sorted((POLICIES / "examples").iterdir())]
ENGINE = Engine(load(POLICIES).policies)


@pytest.mark.parametrize("path", SETS, ids=lambda path: path.name)
def test_nothing_is_wrong_with_what_is_shipped(path):
    """Every set loads without error or warning, and has policies and tests."""
    found = load(path)
    assert found.findings == []
    assert found.policies.priority
    assert found.policies.preemption
    assert list((path / "tests").glob("*.yaml"))


def test_nothing_shipped_surprises():
    """No example request shows anything but what no rule can settle, and all sets together cost less than 2 s."""
    sets = [load(path).policies for path in SETS]
    with within(2.0):
        found = [finding for policies in sets for finding in example_findings(policies, time.time(), "policies")]
        found += [finding for policies in sets for finding in example_pod_findings(policies, time.time())]
    assert {finding.severity for finding in found} == {Severity.NOTICE}


@pytest.mark.parametrize("name", ["", "mine"])
@pytest.mark.parametrize("space", ["default", "kube-system", "team-a"])
@pytest.mark.parametrize("value", [-(2**31), 0, 1_000_000_000])
def test_ordinary_pods_keep_working(name, space, value):
    """Pods up to one billion pass everywhere, without even a warning."""
    found = priority_class(name, value) if name else None
    assert outcomes(ENGINE, create(pod(name), namespace=space, priority=value, priority_class=found)) == {}


@pytest.mark.parametrize(
    ("name", "value"), [("system-node-critical", 2000001000), ("system-cluster-critical", 2000000000)]
)
def test_system_classes_are_for_kube_system(name, value):
    """The system classes are for pods of kube-system alone, and the API server may define them."""

    def said(space):
        return outcomes(ENGINE, create(pod(name), namespace=space, priority=value))

    assert said("kube-system") == {"kubernetes/system-range": "allow"}
    assert said("team-a") == {"kubernetes/system-range": "deny"}
    assert outcomes(ENGINE, define(name, value, user=user("system:apiserver"))) == {"kubernetes/system-range": "allow"}


def test_both_annotations_are_copied_and_shielded():
    """A pod says by itself what it is, and nobody changes that while it runs."""
    keys = [CAN_BE_PREEMPTED, PROTECTION_DURATION]
    assert [key for key, _ in ENGINE.annotations_to_copy(create(pod()))] == keys
    for key in keys:
        assert outcomes(ENGINE, update(pod(), pod(annotations={key: "5"}))) == {"preemptibility/shield": "deny"}


def test_no_existing_class_is_managed_by_surprise():
    """Only classes whose names begin with giveway- are managed."""
    assert ENGINE.managed("giveway-online") is not None
    names = ("online", "high-priority", "system-node-critical", "default", "my-giveway-class")
    assert [name for name in names if ENGINE.managed(name)] == []


def test_documented_policies_load():
    """The examples of the reference are policies without mistakes."""
    text = (POLICIES.parent / "docs" / "policies.md").read_text()
    blocks = [one for one in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "Policy\n" in one]
    assert len(blocks) == 3
    assert [str(one) for block in blocks for one in load_texts([("policies.md", block)]).findings] == []
