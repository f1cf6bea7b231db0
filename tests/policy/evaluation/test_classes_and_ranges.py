"""Which PriorityClasses pods may name and get, and who may use and define reserved ranges (docs/semantics.md B)."""

from tests.policy.builders import (
    create,
    define,
    deployment,
    engine,
    namespace,
    only_message,
    outcomes,
    pod,
    priority_class,
    rules,
    table,
    update,
    user,
)

ALLOWED = rules('{name: r, priorityClasses: {allow: [standard, "batch-*"], deny: ["system-*", batch-x]}}')
DEFAULTS = (
    rules("{name: d, defaultPriorityClass: other}", match="{namespaces: [other]}"),
    rules("{name: d, defaultPriorityClass: standard}", match='{namespaces: ["team-*"]}'),
    rules("{name: d, defaultPriorityClass: last}"),
)
COPIES = (
    rules("{name: a, copyAnnotations: [volcano.sh/preemptable]}"),
    rules("{name: b, copyAnnotations: [godel.bytedance.com/can-be-preempted, volcano.sh/preemptable]}"),
)


def rollout(before):
    """The UPDATE of a Deployment whose new template names `online`."""
    return deployment(pod("online"), operation="UPDATE", old_object={"spec": {"replicas": 1, "template": before}})


SAID = {
    "literally allowed": (create(pod("standard")), "allow"),
    "allowed by glob": (create(pod("batch-a")), "allow"),
    "deny wins over allow": (create(pod("batch-x")), "deny"),
    "denied by glob": (create(pod("system-node-critical")), "deny"),
    "in neither list": (create(pod("online")), "deny"),
    "a pod without a class uses none": (create(pod()), None),
    "a class by global default counts as named": (create(pod(), priority_class=priority_class("online")), "deny"),
    "a policy that comes later freezes no pods that run": (
        update(pod("online", priority=5), pod("online", labels={"a": "b"}, priority=5)),
        None,
    ),
    "a template is judged for its author": (deployment(pod("online")), "deny"),
    "a workload that keeps its template": (rollout(pod("online")), None),
    "a workload with a new template": (rollout(pod("standard")), "deny"),
}


@table("request_, outcome", SAID)
def test_allow_and_deny(request_, outcome):
    """A class must be allowed and must not be denied."""
    assert outcomes(engine(ALLOWED), request_) == ({} if outcome is None else {"p/r": outcome})


def test_denied_text_tells_what_is_allowed_and_what_is_denied():
    """A rule may have both lists; the whole text is in tests/admission/test_refusals.py."""
    text = only_message(engine(ALLOWED), create(pod("online")))
    assert text.endswith("rule p/r allows standard, batch-* and denies system-*, batch-x")


TWINS = {
    "allowed under its first name": ("{allow: [online]}", "allow"),
    "denied under its first name": ("{deny: [online]}", "deny"),
    "allowed under the twin's name": ("{allow: [online-managed]}", "allow"),
}


@table("body, outcome", TWINS)
def test_twin_counts_as_the_class_it_stands_for(body, outcome):
    """The webhook moves pods to a twin; what their author chose is what is judged."""
    twins = "preemptors: {twins: {online: online-managed}}"
    judging = engine(rules(f"{{name: r, priorityClasses: {body}}}"), preemption=twins)
    assert outcomes(judging, create(pod("online-managed"))) == {"p/r": outcome}


GIVEN = {
    "the first that applies": (create(pod()), ("standard", "p2/d")),
    "of another namespace": (create(pod(), namespace="x"), ("last", "p3/d")),
    "the pod that a template describes": (deployment(pod()), ("standard", "p2/d")),
    "names a class": (create(pod("named")), None),
    "exists": (update(pod(), pod()), None),
    "is no pod": (create(pod(), resource="priorityclasses"), None),
}


@table("request_, given", GIVEN)
def test_default_class(request_, given):
    """A new pod that names no class gets the first default whose policy applies; the rule is named."""
    assert engine(*DEFAULTS).default_priority_class(request_) == given


def test_copied_annotations_name_their_first_rule():
    """Each key to copy comes once, with the rule that asked first."""
    judging = engine(*COPIES)
    copied = [("volcano.sh/preemptable", "p/a"), ("godel.bytedance.com/can-be-preempted", "p2/b")]
    assert judging.annotations_to_copy(create(pod())) == copied
    assert judging.annotations_to_copy(update(pod(), pod())) == judging.annotations_to_copy(deployment(pod())) == []


MANAGED = {
    "by glob": ("online-a", True, None),
    "has a twin": ("old", True, "new"),
    "is a twin": ("new", True, None),
    "Kubernetes' own": ("system-node-critical", False, None),
    "not named": ("other", False, None),
    "no class": ("", False, None),
}


@table("name, managed, twin", MANAGED)
def test_managed_classes(name, managed, twin):
    """A class is managed when a PreemptionPolicy names it, or as either half of a pair of twins."""
    preemption = 'preemptors: {priorityClasses: ["online-*", "*-critical"], twins: {old: new}}'
    found = engine(ALLOWED, preemption=preemption).managed(name)
    assert (found is not None, found and found.twin) == (managed, twin)


PLATFORM = rules(
    "{name: band, reserve: {from: 900, to: 1000,"
    " define: [{subjects: [{kind: Group, name: platform}]}, {names: [boot-*]}],"
    " use: [{namespaces: [ingress]}, {namespaceSelector: {matchLabels: {tier: infra}}},"
    " {subjects: [{kind: User, name: root}]},"
    " {subjects: [{kind: ServiceAccount, namespace: ci, name: runner}]}]}}"
)
NAMESPACED = f"match: {{namespaces: ['team-*']}}\nexclude: {{namespaces: [kube-system]}}\n{PLATFORM}"
TOGETHER = rules("{name: r, reserve: {from: 1, to: 9, define: {names: [a], subjects: [{kind: User, name: u}]}}}")


def using(**more):
    """A pod whose priority lies in the range."""
    return create(pod(), **({"priority": 950} | more))


def changed(before=None, **after):
    """The change of a class in the range, in its metadata."""
    old = {"metadata": {"name": "x", **(before or {})}, "value": 950}
    request = define("x", 950, operation="UPDATE", old_object=old)
    request.object["metadata"] |= after
    return request


def deleted():
    """A pod in the range that is being deleted."""
    request = using(operation="UPDATE", old_object={})
    request.object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return request


X = priority_class("x", 950)
DENIED, LET_IN = {"p/band": "deny"}, {"p/band": "allow"}
OF_RANGES = {
    "below": (PLATFORM, using(priority=899), {}),
    "the lower end is reserved": (PLATFORM, using(priority=900), DENIED),
    "the upper end is reserved": (PLATFORM, using(priority=1000), DENIED),
    "above": (PLATFORM, using(priority=1001), {}),
    "a priority that is not resolved": (PLATFORM, using(priority=None), {}),
    "the value counts: by class": (PLATFORM, create(pod("x", priority=950), priority=950, priority_class=X), DENIED),
    "the value counts: by global default": (PLATFORM, using(priority_class=X), DENIED),
    "the value counts: raw": (PLATFORM, create(pod(priority=950)), DENIED),
    "the value counts: by a template": (PLATFORM, deployment(pod("x"), priority=950), DENIED),
    "one right suffices: namespace": (PLATFORM, using(namespace="ingress"), LET_IN),
    "one right suffices: its label": (PLATFORM, using(namespace_object=namespace("team-a", tier="infra")), LET_IN),
    "one right suffices: user": (PLATFORM, using(user=user("root")), LET_IN),
    "one right suffices: service account": (PLATFORM, using(user=user("system:serviceaccount:ci:runner")), LET_IN),
    "an update that keeps the priority": (PLATFORM, update(pod(priority=950), pod(priority=950, nodeName="n")), {}),
    "deletion is never held up": (PLATFORM, deleted(), {}),
    "defining: anyone": (PLATFORM, define("x", 950), DENIED),
    "defining: by group": (PLATFORM, define("x", 950, user=user("p", "platform")), LET_IN),
    "defining: by name": (PLATFORM, define("boot-1", 950), LET_IN),
    "names and subjects of one right hold together": (TOGETHER, define("a", 5, user=user("u")), {"p/r": "allow"}),
    "the name alone": (TOGETHER, define("a", 5), {"p/r": "deny"}),
    "the subject alone": (TOGETHER, define("b", 5, user=user("u")), {"p/r": "deny"}),
    "changing a class in the range": (PLATFORM, changed(annotations={"a": "b"}), DENIED),
    "bookkeeping of a class in the range": (
        PLATFORM,
        changed({"resourceVersion": "1"}, resourceVersion="2", finalizers=["f"], managedFields=[{}]),
        {},
    ),
    "a class lies in no namespace": (NAMESPACED, define("x", 950), DENIED),
    "a pod in a namespace that is not meant": (NAMESPACED, using(namespace="other"), {}),
    **{
        f"a class of value {value!r}": (PLATFORM, define("x", value), {}) for value in ("950", 950.0, True, None, [950])
    },
}


@table("spec, request_, said", OF_RANGES)
def test_ranges(spec, request_, said):
    """Who uses a value or defines a class of it needs the right; what is no integer is left to the API server."""
    assert outcomes(engine(spec), request_) == said
