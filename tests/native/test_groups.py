"""PodGroups natively: the rules about the class and the value of a pod hold for them, as the webhook has it."""

import pytest

from tests.native.comparing import Both, pod_request
from tests.policy.builders import engine, rules, table

BAND = "{name: band, reserve: {from: 900, to: 1000, use: {namespaces: [ops]}}}"
ALLOWED = "{name: allowed, priorityClasses: {allow: [low, high]}}"
READS = "{name: reads, validate: {expression: 'size(object.spec.containers) > 0', message: m}}"
OBJECTS = [
    *({"kind": "PriorityClass", "metadata": {"name": n}, "value": v} for n, v in (("low", 5), ("high", 950), ("x", 7))),
    *({"kind": "Namespace", "metadata": {"name": name}} for name in ("a", "ops")),
]


def asked(namespace="a", version="v1alpha2", user="alice", **spec):
    body = {"kind": "PodGroup", "metadata": {"name": "gang", "namespace": namespace}, "spec": spec}
    request = pod_request({**body, "kind": "Pod"}, user=user)
    kind = {"group": "scheduling.k8s.io", "version": version}
    return {
        **request,
        "object": body,
        "kind": {**kind, "kind": "PodGroup"},
        "resource": {**kind, "resource": "podgroups"},
    }


@pytest.mark.parametrize("version", ["v1alpha2", "v1"])
@table(
    "request_, refused",
    {
        "allowed": ({"priorityClassName": "low", "priority": 5}, ""),
        "a reserved value": ({"priorityClassName": "high", "priority": 950}, "p/band"),
        "with the right": ({"priorityClassName": "high", "priority": 950, "namespace": "ops"}, ""),
        "a class that is not allowed": ({"priorityClassName": "x", "priority": 7}, "p/allowed"),
        "neither class nor priority": ({}, ""),
    },
)
def test_both_judge_a_group_alike(request_, refused, version):
    """The same refusal in the same words; expressions over pods say nothing of groups."""
    both = Both(engine(rules(BAND, ALLOWED, READS)).policies, OBJECTS, now=0.0)
    webhook, native = both.validate(asked(version=version, **request_))
    assert webhook.denied == native.denied
    assert [refused] == [rule for rule in ("p/band", "p/allowed") if any(rule in one for one in native.denied)] or (
        not refused and not native.denied
    )
