"""What no rule settles."""

import pytest

from tests.policy.example_requests.builders import COPY, SYSTEM, policy, told
from webhook.policy.shapes.findings import Severity

PREEMPTION = """\
apiVersion: giveway.dev/v1alpha1
kind: PreemptionPolicy
metadata: {name: m}
spec:
  preemptors: {priorityClasses: [online]}
"""


def test_what_no_rule_is_about():
    """A notice: the range above one billion."""
    (critical,) = told(policy(COPY), severity=Severity.NOTICE)
    assert critical == (
        "nothing reserves the range above one billion: a pod in some-namespace, made by anybody, gets 2000001000"
    )
    assert told(SYSTEM, severity=Severity.NOTICE) == []


@pytest.mark.parametrize(
    ("spec", "read"),
    [
        ("victims: {pairs: [{victims: {labels: {matchLabels: {tier: a}}}}]}", "label tier"),
        ("victims: {pairs: [{preemptors: {labels: {matchExpressions: [{key: z, operator: Exists}]}}}]}", "label z"),
        ("limits: {perLabel: {label: team, evictions: 1}}\n  groups: {disruption: Never}", "label team and group"),
        ("victims: {cost: {groupRestarts: true}}", "group"),
        ("groups: {disruption: Pod}", ""),
    ],
)
def test_what_is_read_of_pods_as_they_were_made(spec, read):
    """A notice: of pods without a record whoever may patch them writes it."""
    found = told(SYSTEM, f"{PREEMPTION}  {spec}\n", severity=Severity.NOTICE)
    assert [text.partition(" counts")[0] for text in found] == ([f"a pod's {read}"] if read else [])
