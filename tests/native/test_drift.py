"""What is applied beside what the policies say, and who enforces."""

import copy

import pytest

from tests.native.comparing import SETTINGS
from tests.policy.builders import engine, rules
from webhook.native.compiler import compile_policies
from webhook.native.drift import Mode, drift, mode

SPEC = rules("{name: allowed, priorityClasses: {allow: [standard]}}")
COMPILED = compile_policies(engine(SPEC).policies, [], SETTINGS, 0.0).objects
REGISTERED = [{"webhooks": [{"name": "pods.validate.giveway.dev"}, {"name": "probe.validate.giveway.dev"}]}]
PASSING = [
    {"webhooks": [{**one, "failurePolicy": "Ignore"} for one in REGISTERED[0]["webhooks"]]},
    {"webhooks": [{"name": "pods.mutate.giveway.dev", "failurePolicy": "Ignore"}]},
]
PROBED = [{"webhooks": [{"name": "probe.validate.giveway.dev"}, {"name": "probe.mutate.giveway.dev"}]}]


def stored():
    """The objects as an API server gives them back."""
    found = copy.deepcopy(COMPILED)
    for number, one in enumerate(found):
        one["metadata"] |= {"uid": str(number), "resourceVersion": "1", "managedFields": [{}]}
        one["status"] = {"observedGeneration": 1}
        if "variables" not in one["spec"] and one["kind"] == "ValidatingAdmissionPolicy":
            one["spec"]["variables"] = []
    return found


def test_what_the_api_server_adds_is_no_drift():
    """Its own fields, a status, empty lists."""
    assert drift(stored(), COMPILED) == []


def test_each_difference_is_named():
    """What is missing, what somebody changed, and what is left over from other policies; not what others made."""
    there = stored()
    gone = there.pop()
    there[4]["spec"]["validations"][0]["expression"] = "true"
    there[-2]["spec"]["validationActions"] = ["Warn"]
    other = copy.deepcopy(there[0])
    other["metadata"]["name"] = "giveway-q-pods-enforce"
    strange = {"kind": "ValidatingAdmissionPolicy", "metadata": {"name": "somebody-else"}, "spec": {}}
    assert list(map(str, drift([*there, other, strange], COMPILED))) == [
        f"{there[4]['kind']} {there[4]['metadata']['name']} is different",
        f"{there[-2]['kind']} {there[-2]['metadata']['name']} is different",
        f"{gone['kind']} {gone['metadata']['name']} is missing",
        "MutatingAdmissionPolicy giveway-q-pods-enforce is left over",
    ]


@pytest.mark.parametrize(
    ("applied", "webhooks", "found"),
    [
        ([], [], Mode.NONE),
        ([], PROBED, Mode.NONE),
        ([], REGISTERED, Mode.WEBHOOK),
        (COMPILED, REGISTERED, Mode.BOTH),
        (COMPILED, PASSING, Mode.BACKSTOP),
        (COMPILED, [PASSING[0], {"webhooks": [{"name": "pods.mutate.giveway.dev"}]}], Mode.BOTH),
        (COMPILED, PROBED, Mode.NATIVE),
        ([one for one in COMPILED if not one["kind"].endswith("Binding")], [], Mode.NONE),
    ],
    ids=["nothing", "only probed", "webhook", "both", "backstop", "one still waits", "native", "not bound"],
)
def test_who_enforces(applied, webhooks, found):
    """By the bindings and the entries that are there."""
    assert mode(applied, webhooks) == found
