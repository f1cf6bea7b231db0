"""The checks of `giveway doctor` about who is asked: configurations of everybody, and the API server's own policies."""

import copy

import pytest

from tests.admission.builders import make_policy, make_rule
from tests.cases import cases
from tests.inspection.observing import AS_STATIC, NOW, assert_finds, configuration, entry, finds, observed, summary
from webhook.inspection.checks import native, registration, webhooks
from webhook.inspection.observed import CONFIGURATIONS, NATIVE, OwnState
from webhook.native.compiler import compile_policies
from webhook.native.objects import Settings
from webhook.policy.model.policies import Policies
from webhook.policy.model.rules import PriorityClasses, ProtectAnnotations
from webhook.registration import stored
from webhook.registration.entries import VALIDATING, WebhookTarget, entries

MUTATES, VALIDATES = CONFIGURATIONS
OURS = configuration("giveway", entry("pods.mutate.giveway.dev", reinvocationPolicy="IfNeeded"))


def both(*entries):
    """Both configurations of giveway with these entries."""
    return {plural: [configuration("giveway", *entries)] for plural in CONFIGURATIONS}


test_registered = finds(
    "Both configurations are there, with entries that judge.",
    registration.registered,
    ("not installed", {}, ""),
    ("one alone", {MUTATES: [OURS]}, "error: There is no Validating*"),
    ("empty", both(), ["error: *no entries that judge anything."] * 2),
    ("probes alone", both(entry("probe.mutate.giveway.dev")), ["error: *no entries that judge anything."] * 2),
    ("Ignore", both(entry("pods.x.giveway.dev", failurePolicy="Ignore")), ["info: *failurePolicy Ignore*"] * 2),
    ("in force", {plural: [OURS] for plural in CONFIGURATIONS}, ""),
    given=lambda configurations: observed(**configurations),
)


SERVICE = {"clientConfig": {"service": {"namespace": "kyverno", "name": "svc"}}}
URL = {"clientConfig": {"url": "https://x"}}
THERE = [{"metadata": {"namespace": "kyverno", "name": "svc"}}]
LEFT_OUT = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "kyverno"]}


def with_kyverno(fields, services):
    """Somebody else's webhook with these fields, and the Services that are there."""
    spaces = {"team-a": {}, "kube-system": {}, "kyverno": {}}
    return observed(**{VALIDATES: [configuration("kyverno", entry(**fields))]}, services=services, namespaces=spaces)


test_lock_out = finds(
    "A webhook that fails closed has a server, and leaves out what its server needs.",
    webhooks.locking_out,
    ("no Service", SERVICE, [], "error: *kyverno/svc, which does not exist*"),
    ("its own pods", SERVICE, THERE, "warning: *"),
    ("left out", {**SERVICE, "namespaceSelector": {"matchExpressions": [LEFT_OUT]}}, THERE, ""),
    ("Ignore", {**SERVICE, "failurePolicy": "Ignore"}, [], ""),
    ("by label", {**SERVICE, "objectSelector": {"matchLabels": {"a": "b"}}}, THERE, ""),
    ("not about pods", {"rules": []}, [], ""),
    ("kube-system", URL, [], "warning: *"),
    given=with_kyverno,
)


def daemon_set(namespace, **spec):
    return {"metadata": {"namespace": namespace, "name": "agent"}, "spec": {"template": {"spec": spec}}}


LOCKS = "warning: * refuses pods in calico-system when nobody answers*"


def with_agents(spec):
    """Somebody's webhook for two namespaces that have DaemonSets, one of which is looked at for this spec."""
    judged = {"matchLabels": {"judged": "yes"}}
    return observed(
        **{VALIDATES: [configuration("kyverno", entry(**URL, namespaceSelector=judged))]},
        daemonsets=[daemon_set("calico-system", **spec), daemon_set("left-out", hostNetwork=True)],
        namespaces={"kube-system": {}, "calico-system": {"judged": "yes"}, "left-out": {}},
    )


test_daemon_sets_that_nodes_need_lock_out = finds(
    "A webhook that fails closed leaves out the network plugin's namespace, also giveway's own entries.",
    webhooks.locking_out,
    ("of the host's network", {"hostNetwork": True}, LOCKS),
    ("tolerates all", {"tolerations": [{"operator": "Exists"}]}, LOCKS),
    ("tolerates an effect", {"tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]}, LOCKS),
    ("tolerates one key", {"tolerations": [{"operator": "Exists", "key": "a"}]}, ""),
    ("any other", {}, ""),
    given=with_agents,
)


def test_exemptions():
    """Labelled namespaces are listed; many pods in them are a warning."""
    spaces, there = {"team-a": {}, "free": {"giveway.dev/exempt": ""}}, summary("x", namespace="free")
    assert_finds(webhooks.exempting, observed(summary(), there, namespaces=spaces), "info: *")
    assert_finds(webhooks.exempting, observed(there, namespaces=spaces), "warning: *: free (1).")


def keeps(key):
    """Policies that protect an annotation."""
    return Policies(
        priority=(make_policy("t", make_rule("kept", protect_annotations=ProtectAnnotations(keys=(key,)))),)
    )


BEFORE, AFTER = keeps("example.com/kept"), keeps("example.com/other")
STATIC = OwnState(deployments={"giveway-webhook": AS_STATIC})
OLD = "warning: ValidatingWebhookConfiguration giveway is not what the policies in force need: *pods.validate*"


def applied(policies, target):
    """The configurations as `giveway compile --webhook` prints them."""
    made = entries(policies, target)
    return {plural: [configuration("giveway", *made[kind])] for plural, kind in CONFIGURATIONS.items()}


def kept(policies):
    """The configurations, of which a replica wrote the one of validation."""
    made = applied(BEFORE, WebhookTarget())
    written = stored.with_entries(made[VALIDATES][0], entries(policies, WebhookTarget())[VALIDATING], str)
    return made | {VALIDATES: [written]}


def old(policies, configurations, expected, own=None):
    cluster = observed(**configurations, own_state=own or OwnState())
    cluster.policies = policies
    assert_finds(registration.old, cluster, expected)


@pytest.mark.parametrize(
    "target",
    cases(
        ("as shipped", WebhookTarget()),
        ("open and without the plugin", WebhookTarget(failure_policy="Ignore", priority_plugin=False)),
        ("names", WebhookTarget(service="other", port=8443, reconciler="o'neil\\x")),
        ("url", WebhookTarget(url="https://giveway.example:9443/base")),
    ),
)
def test_entries_that_fit(target):
    """What `giveway compile --webhook` prints is right whatever its options; after the policies change it is old."""
    old(BEFORE, applied(BEFORE, target), "")
    old(AFTER, applied(BEFORE, target), OLD)


def test_entries_that_a_replica_keeps():
    """Its own are not looked at, those that somebody changed by hand are; an empty configuration is another check's."""
    configurations = kept(Policies())
    old(BEFORE, configurations, "")
    [written] = configurations[VALIDATES]
    written["webhooks"] = written["webhooks"][1:]
    old(BEFORE, configurations, OLD)
    for nothing in ([stored.emptied(written)], []):
        old(BEFORE, configurations | {VALIDATES: nothing}, "")


def test_entries_of_a_static_installation():
    """Nobody renews what a replica wrote before an administrator took over: it is right, or old."""
    old(BEFORE, kept(BEFORE), "", STATIC)
    old(AFTER, kept(BEFORE), OLD, STATIC)


def test_giveway_itself_locks_nobody_out():
    """The entries that giveway registers pass its own checks."""
    cluster = observed(
        **applied(Policies(), WebhookTarget()),
        services=[{"metadata": {"namespace": "giveway-system", "name": "giveway-webhook"}}],
        namespaces={"team-a": {}, "kube-system": {}, "giveway-system": {}},
    )
    for check in (registration.registered, webhooks.locking_out, webhooks.exempting):
        assert_finds(check, cluster, "")


POLICY = make_policy("teams", make_rule("allowed", priority_classes=PriorityClasses(allow=("batch",))))
PASSED_OVER, WAITED_FOR = (
    both({"name": "pods.validate.giveway.dev", "failurePolicy": policy}) for policy in ("Ignore", "Fail")
)


def spoiled(objects):
    """The compiled objects with one changed, one that is missing and one too many."""
    objects[0]["spec"]["failurePolicy"] = "Ignore"
    gone = ("ValidatingAdmissionPolicyBinding", "giveway-teams-pods-enforce")
    other = next(copy.deepcopy(each) for each in objects if each["kind"] == "ValidatingAdmissionPolicy")
    other["metadata"]["name"] = "giveway-gone-pods-enforce"
    return [*(each for each in objects if (each["kind"], each["metadata"]["name"]) != gone), other]


BY = "info: The policies are enforced by: "


@pytest.mark.parametrize(
    ("change", "configurations", "expected"),
    cases(
        ("the webhook alone", lambda _: [], PASSED_OVER, []),
        ("alone", list, {}, [f"{BY}native policies only."]),
        ("a backstop", list, PASSED_OVER, [f"{BY}webhook with native policies as a backstop."]),
        (
            "no backstop",
            list,
            WAITED_FOR,
            [
                f"{BY}webhook and native policies; pods wait for the webhook all the same.",
                "warning: Native policies are*",
            ],
        ),
        (
            "different",
            spoiled,
            {},
            [
                f"{BY}native policies only.",
                "error: MutatingAdmissionPolicy giveway-builtin-pods-mutate is different.",
                "error: ValidatingAdmissionPolicyBinding giveway-teams-pods-enforce is missing.",
                "warning: ValidatingAdmissionPolicy giveway-gone-pods-enforce is left over.",
            ],
        ),
    ),
)
def test_native_policies(change, configurations, expected):
    """Most clusters have only the webhook; with native policies the mode is told, and each object that differs."""
    cluster = observed(POLICY, **configurations)
    reconciler = "system:serviceaccount:giveway-system:giveway-reconciler"
    settings = Settings(namespace="giveway-system", reconciler=reconciler)
    objects = change(copy.deepcopy(compile_policies(cluster.policies, [], settings, NOW).objects))
    for kind in NATIVE:
        cluster.objects[kind.plural] = [
            {key: part for key, part in each.items() if key != "kind"} for each in objects if each["kind"] == kind.kind
        ]
    assert_finds(native.in_step, cluster, expected)
    if expected:
        # In these modes it is no fault that no webhook is registered, or that it may be passed over
        assert_finds(registration.registered, cluster, "")
