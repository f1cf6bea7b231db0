"""Reserved ranges: who may define classes in them and who may use them (docs/semantics.md B)."""

from tests.policy.builders import (
    create,
    define,
    deployment,
    engine,
    namespace,
    outcomes,
    pod,
    priority_class,
    rules,
    table,
    update,
    user,
)

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
    request = using()
    request.object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return request


X = priority_class("x", 950)
DENIED, ALLOWED = {"p/band": "deny"}, {"p/band": "allow"}
SAID = {
    "below": (PLATFORM, using(priority=899), {}),
    "the lower end is reserved": (PLATFORM, using(priority=900), DENIED),
    "the upper end is reserved": (PLATFORM, using(priority=1000), DENIED),
    "above": (PLATFORM, using(priority=1001), {}),
    "a priority that is not resolved": (PLATFORM, using(priority=None), {}),
    "the value counts: by class": (PLATFORM, create(pod("x", priority=950), priority=950, priority_class=X), DENIED),
    "the value counts: by global default": (PLATFORM, using(priority_class=X), DENIED),
    "the value counts: raw": (PLATFORM, create(pod(priority=950)), DENIED),
    "the value counts: by a template": (PLATFORM, deployment(pod("x"), priority=950), DENIED),
    "one right suffices: namespace": (PLATFORM, using(namespace="ingress"), ALLOWED),
    "one right suffices: its label": (PLATFORM, using(namespace_object=namespace("team-a", tier="infra")), ALLOWED),
    "one right suffices: user": (PLATFORM, using(user=user("root")), ALLOWED),
    "one right suffices: service account": (PLATFORM, using(user=user("system:serviceaccount:ci:runner")), ALLOWED),
    "an update that keeps the priority": (PLATFORM, update(pod(priority=950), pod(priority=950, nodeName="n")), {}),
    "deletion is never held up": (PLATFORM, deleted(), {}),
    "defining: anyone": (PLATFORM, define("x", 950), DENIED),
    "defining: by group": (PLATFORM, define("x", 950, user=user("p", "platform")), ALLOWED),
    "defining: by name": (PLATFORM, define("boot-1", 950), ALLOWED),
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


@table("spec, request_, said", SAID)
def test_ranges(spec, request_, said):
    """Who uses a value or defines a class of it needs the right; what is no integer is left to the API server."""
    assert outcomes(engine(spec), request_) == said
