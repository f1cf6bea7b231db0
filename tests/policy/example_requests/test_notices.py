"""What no rule settles, and globs that mean something else than they seem to."""

import pytest

from tests.policy.example_requests.builders import COPY, KEY, SYSTEM, policy, told
from webhook.policy.files.loading import load_texts
from webhook.policy.shapes.findings import Severity

BY_LABEL = "reserve: {from: 100, to: 200, use: {namespaceSelector: {matchLabels: {b: c}}}}"
PREEMPTION = """\
apiVersion: giveway.dev/v1alpha1
kind: PreemptionPolicy
metadata: {name: m}
spec:
  preemptors: {priorityClasses: ["online-*"]}
  victims: {mode: MODE, pairs: [{victims: {priorityClasses: ["offline-*"]}}]}
"""


def test_globs_that_look_like_regular_expressions():
    """A dot and a star are pointed out where they stand, in a PreemptionPolicy, too."""
    (finding,) = load_texts(
        [("p.yaml", PREEMPTION.replace("offline-*", "offline-.*").replace("MODE", "opt-in"))]
    ).findings
    assert (finding.severity, finding.source.line) == (Severity.WARNING, 6)
    assert finding.message == (
        '"offline-.*" means names with a dot in them; * alone stands for any characters: "offline-*"'
    )


def test_what_no_rule_is_about():
    """Notices: the range above one billion, and classes outside every range whose annotations open their pods."""
    (labels, _) = told(policy(BY_LABEL), severity=Severity.NOTICE)
    assert labels == (
        "p/r goes by a label: a pod with the namespace label b=c in some-namespace, made by anybody, gets 100:"
        " see that nobody else labels namespaces"
    )

    (critical,) = told(policy(COPY), severity=Severity.NOTICE)
    assert critical == (
        "nothing reserves the range above one billion: a pod in some-namespace, made by anybody, gets 2000001000"
    )
    annotation, *globs = told(SYSTEM, PREEMPTION.replace("MODE", "opt-in"), severity=Severity.NOTICE)
    assert annotation.startswith(
        f"PriorityClass offline-a of value 1000 with the annotation {KEY}=true, changed by anybody who may patch it,"
    )
    assert told(SYSTEM, PREEMPTION.replace("MODE", "opt-out"), severity=Severity.NOTICE) == globs
    everything = policy("reserve: {from: -2147483648, to: 1000000000}", name="q")
    assert told(SYSTEM, everything, PREEMPTION.replace("MODE", "opt-in"), severity=Severity.NOTICE) == []


def test_classes_that_a_glob_means():
    """A notice for each glob by which a policy means a class that anybody may define; none if a range holds all values.

    A range that leaves values out is no help.
    """
    some = policy("reserve: {from: 0, to: 999999999}", name="q")
    defined = "PriorityClass {} of value {}, defined by anybody who may create classes, is let in, and the policy means"
    for given, value in ((), 1000), ((some,), 10**9):
        found = told(SYSTEM, *given, PREEMPTION.replace("MODE", "opt-out"), severity=Severity.NOTICE)
        assert len(found) == 2
        for text, name in zip(found, ("online-a", "offline-a"), strict=True):
            assert text.startswith(defined.format(name, value))
    every = PREEMPTION.replace("online-*", "online").replace("offline-*", "*").replace("MODE", "opt-out")
    assert told(SYSTEM, every, severity=Severity.NOTICE) == []


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
    made = PREEMPTION[: PREEMPTION.index("  victims")].replace("online-*", "online") + f"  {spec}\n"
    found = [text for text in told(SYSTEM, made, severity=Severity.NOTICE) if "not-rec" in text]
    assert [text.partition(" counts")[0] for text in found] == ([f"a pod's {read}"] if read else [])
