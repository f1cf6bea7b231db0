"""`doctor` about the API server's own policies: the mode, and what differs from the policies."""

import copy

from tests.admission.builders import make_policy, make_rule
from tests.inspection.observing import NOW, observed
from webhook.inspection.checks import native, registration
from webhook.native.compiler import compile_policies
from webhook.native.objects import Settings
from webhook.policy.model.rules import PriorityClasses

POLICY = make_policy("teams", make_rule("allowed", priority_classes=PriorityClasses(allow=("batch",))))
ENTRIES = [{"name": "pods.validate.giveway.dev", "failurePolicy": "Ignore"}]
REGISTERED = {
    plural: [{"metadata": {"name": "giveway"}, "webhooks": ENTRIES}]
    for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
}


def cluster(change=lambda objects: objects, **more):
    """A cluster in which the compiled policies are applied, changed as said."""
    found = observed(POLICY, **more)
    settings = Settings(
        namespace="giveway-system", reconciler="system:serviceaccount:giveway-system:giveway-reconciler"
    )
    objects = change(copy.deepcopy(compile_policies(found.policies, [], settings, NOW).objects))
    for plural, kind in native.PLURALS.items():
        found.objects[plural] = [
            {key: part for key, part in one.items() if key != "kind"} for one in objects if one["kind"] == kind
        ]
    return found


def test_without_native_policies_there_is_nothing_to_say():
    """Most clusters have only the webhook."""
    assert list(native.in_step(observed(POLICY, **REGISTERED))) == []


def test_what_is_as_the_policies_say_is_only_told_by_its_mode():
    """And in that mode it is no fault that no webhook is registered, or that it may be passed over."""
    alone = cluster()
    assert [finding.what for finding in native.in_step(alone)] == [
        "The policies are enforced by: native policies only."
    ]
    assert list(registration.registered(alone)) == []
    beside = cluster(**REGISTERED)
    assert [finding.what for finding in native.in_step(beside)] == [
        "The policies are enforced by: webhook with native policies as a backstop."
    ]
    assert list(registration.registered(beside)) == []


def test_what_differs_is_an_error_and_what_is_left_over_a_warning():
    """Each object is named, with what to do."""

    def change(objects):
        objects[0]["spec"]["failurePolicy"] = "Ignore"
        gone = ("ValidatingAdmissionPolicyBinding", "giveway-teams-pods-enforce")
        left = [one for one in objects if (one["kind"], one["metadata"]["name"]) != gone]
        other = next(copy.deepcopy(one) for one in objects if one["kind"] == "ValidatingAdmissionPolicy")
        other["metadata"]["name"] = "giveway-gone-pods-enforce"
        return [*left, other]

    found = [(finding.severity, finding.what) for finding in native.in_step(cluster(change))]
    assert found[1:] == [
        ("error", "MutatingAdmissionPolicy giveway-builtin-pods-mutate is different."),
        ("error", "ValidatingAdmissionPolicyBinding giveway-teams-pods-enforce is missing."),
        ("warning", "ValidatingAdmissionPolicy giveway-gone-pods-enforce is left over."),
    ]


def test_a_webhook_that_pods_wait_for_makes_native_policies_no_backstop():
    """As after `install --url … --mode backstop` beside a webhook that was started without --failure-policy=Ignore."""
    registered = copy.deepcopy(REGISTERED)
    for configurations in registered.values():
        for one in configurations:
            for entry in one["webhooks"]:
                entry["failurePolicy"] = "Fail"
    told, warned = list(native.in_step(cluster(**registered)))
    assert told.what.endswith("webhook and native policies; pods wait for the webhook all the same.")
    assert (warned.severity, "no backstop" in warned.why) == ("warning", True)
