"""The shipped policies: safe on any cluster, and kept in order with their documentation.

What they decide is in their own tests (policies/tests), which tests/cli/test_test.py runs.
"""

import re
import time
from pathlib import Path

import pytest

from tests.processor_time import within
from webhook.policy.evaluation.engine import Engine
from webhook.policy.example_requests.findings import example_findings
from webhook.policy.files.loading import load_texts, texts_in
from webhook.policy.shapes.findings import Severity
from webhook.preemption.example_pods import example_pod_findings

POLICIES = Path(__file__).parents[2] / "policies"
SETS = [POLICIES, *sorted((POLICIES / "examples").iterdir())]


@pytest.mark.parametrize("path", SETS, ids=lambda path: path.name)
def test_nothing_is_wrong_with_what_is_shipped(path):
    """Every set loads without error or warning, and has policies and tests."""
    found = load_texts(*texts_in(path))
    assert found.findings == []
    assert found.policies.priority
    assert found.policies.preemption
    assert list((path / "tests").glob("*.yaml"))


def test_nothing_shipped_surprises():
    """No example request shows anything but what no rule can settle, and all sets together cost less than 2 s."""
    sets = [load_texts(*texts_in(path)).policies for path in SETS]
    with within(2.0):
        found = [finding for policies in sets for finding in example_findings(policies, time.time(), "policies")]
        found += [finding for policies in sets for finding in example_pod_findings(policies, time.time())]
    assert {finding.severity for finding in found} == {Severity.NOTICE}


def test_no_existing_class_is_managed_by_surprise():
    """Only classes whose names begin with giveway- are managed."""
    managed = Engine(load_texts(*texts_in(POLICIES)).policies).managed
    assert managed("giveway-online") is not None
    names = ("online", "high-priority", "system-node-critical", "default", "my-giveway-class")
    assert [name for name in names if managed(name)] == []


def test_documented_policies_load():
    """The examples of the reference are policies without mistakes."""
    text = (POLICIES.parent / "docs" / "policies.md").read_text()
    blocks = [one for one in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "Policy\n" in one]
    assert len(blocks) == 3
    assert [str(one) for block in blocks for one in load_texts([("policies.md", block)]).findings] == []
