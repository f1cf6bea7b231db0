"""Random policy sets, clusters and requests, small enough that they often meet."""

from typing import Any

from hypothesis import strategies as st

from webhook.kube.objects.meta import LabelSelector, Requirement
from webhook.policy.model import rules, values
from webhook.policy.model.match import RequestMatch, Subject
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import GroupDisruption, Groups, PreemptionPolicy, Preemptors
from webhook.policy.model.priority import MatchCondition, PolicyException, PriorityPolicy
from webhook.policy.model.victims import PodsMatch, PreemptionPair, Victims
from webhook.policy.shapes.yaml_nodes import SourcePosition

HERE = SourcePosition("p.yaml", 1, 1)
NOW = 1_790_000_000.0
NAMESPACES = ["team-a", "team-b", "ops", "kube-system"]
CLASS_NAMES = ["low", "high", "online-a", "online-b", "batch", "system-x"]
GLOBS = [*CLASS_NAMES, "online-*", "*-a", "o*e-*", "*", "h*"]
LABELS = {"app": ["web", "db"], "tier": ["gold"]}
KEYS = [values.CAN_BE_PREEMPTED, values.PROTECTION_DURATION, "example.com/x"]
USERS = [
    "alice",
    "bob",
    "system:node:n1",
    "system:serviceaccount:kube-system:replicaset-controller",
    "system:serviceaccount:ops:runner",
    "system:serviceaccount:team-a:default",
    "system:kube-controller-manager",
    "system:serviceaccount:giveway-system:giveway-reconciler",
]
GROUPS = ["dev", "platform", "platform-leads"]
EXPRESSIONS = [
    "'app' in object.metadata.labels",
    "object.metadata.annotations.size() < 2",
    'object.metadata.labels[?"tier"].orValue("") != "gold"',
    "has(object.metadata.labels) && object.metadata.name != 'bad'",
    'namespaceObject == null || "owner" in namespaceObject.metadata.labels',
    'namespaceObject != null && "owner" in namespaceObject.metadata.labels',
    'namespaceObject.metadata.labels[?"tier"].orValue("") == "gold"',
    "request.operation == 'CREATE' || oldObject.metadata.labels == object.metadata.labels",
    "!('x' in request.userInfo.groups)",
    "request.dryRun == false // a comment",
    "object.?spec.?hostNetwork.orValue(false)",
    "oldObject != null",
    "oldObject == null || has(oldObject.metadata.labels)",
    "has(request.dryRun) && has(request.userInfo.uid)",
    "request.userInfo.uid == '' && request.subResource == ''",
]


def some(elements: list[Any], most: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(st.sampled_from(elements), min_size=1, max_size=most, unique=True).map(tuple)


subjects = st.one_of(
    st.builds(Subject, kind=st.just("User"), name=st.sampled_from([*USERS, "a*", "system:*"])),
    st.builds(Subject, kind=st.just("Group"), name=st.sampled_from([*GROUPS, "plat*"])),
    st.builds(
        Subject,
        kind=st.just("ServiceAccount"),
        namespace=st.sampled_from([*NAMESPACES, "team-*"]),
        name=st.sampled_from(["runner", "default", "*"]),
    ),
)
requirements = st.one_of(
    st.builds(
        Requirement, key=st.just("app"), operator=st.sampled_from(["In", "NotIn"]), values=some(["web", ""]).map(list)
    ),
    st.builds(Requirement, key=st.just("tier"), operator=st.sampled_from(["Exists", "DoesNotExist"]), values=st.none()),
)
selectors = st.one_of(
    st.builds(LabelSelector, match_labels=st.sampled_from([{"app": "web"}, {"tier": "gold"}, {"tier": ""}, {}])),
    st.builds(LabelSelector, match_expressions=st.lists(requirements, min_size=1, max_size=2)),
)


@st.composite
def matches(draw: Any, *, operations: bool = True) -> RequestMatch:
    """A match with at most two parts, so that most requests are meant."""
    parts = {
        "namespaces": some([*NAMESPACES, "team-*", "*-a"]),
        "namespace_selector": selectors,
        "object_selector": selectors,
        "subjects": st.lists(subjects, min_size=1, max_size=2).map(tuple),
        "operations": some(["CREATE", "UPDATE"]),
    }
    names = list(parts) if operations else list(parts)[:-1]
    chosen = draw(st.lists(st.sampled_from(names), max_size=draw(st.sampled_from([0, 1, 1, 2])), unique=True))
    return RequestMatch(**{name: draw(parts[name]) for name in chosen})


rights = st.lists(matches(operations=False), max_size=2).map(tuple)


@st.composite
def bodies(draw: Any) -> dict[str, Any]:
    """One rule body."""
    kind = draw(st.sampled_from(["classes", "reserve", "validate", "protect", "copy", "default"]))
    if kind == "default":
        return {"default_priority_class": draw(st.sampled_from([*CLASS_NAMES, "missing"]))}
    if kind == "classes":
        allow = draw(st.none() | some(GLOBS))
        deny = draw(some(GLOBS, 1)) if allow is None else ()
        return {"priority_classes": rules.PriorityClasses(allow=allow, deny=deny)}
    if kind == "reserve":
        definers = st.builds(
            RequestMatch,
            names=st.none() | some(GLOBS),
            subjects=st.none() | st.lists(subjects, min_size=1, max_size=2).map(tuple),
        )
        start = draw(st.sampled_from([-60, 0, 61, 122]))
        define = draw(st.lists(definers, max_size=2).map(tuple))
        return {"reserve": rules.Reserve(from_=start, to=start + 60, use=draw(rights), define=define)}
    if kind == "copy":
        return {"copy_annotations": draw(some(KEYS))}
    if kind == "protect":
        operations = draw(some(["CREATE", "UPDATE"]))
        return {
            "protect_annotations": rules.ProtectAnnotations(
                keys=draw(some(KEYS)),
                allow=draw(rights),
                operations=operations,
                resources=draw(some(["pods", "priorityclasses"])),
            )
        }
    resources = draw(some(["pods", "priorityclasses"]))
    words = draw(st.sampled_from(["", "'name ' + object.metadata.name", "'a\\n b'", "object.spec.nothing"]))
    return {
        "validate": rules.Validate(
            expression=draw(st.sampled_from([*EXPRESSIONS, "object.spec.missing == 1"])),
            message="say so",
            message_expression=words,
            resources=resources,
        )
    }


@st.composite
def priority_policies(draw: Any, name: str) -> PriorityPolicy:
    """A policy of one to three rules, sometimes with an exception."""
    enforcement = st.sampled_from(list(rules.Enforcement))
    drawn = tuple(
        rules.PriorityRule(name=f"r{place}", source=HERE, enforcement=draw(enforcement), **body)
        for place, body in enumerate(draw(st.lists(bodies(), min_size=1, max_size=3)))
    )
    refusing = [rule.name for rule in drawn if rule.declaration.refuses]
    exceptions: tuple[PolicyException, ...] = ()
    if refusing and draw(st.booleans()):
        exceptions = (
            PolicyException(
                match=draw(matches(operations=False)),
                rules=draw(some(refusing)),
                reason="it moves",
                owner="team",
                until=NOW + draw(st.sampled_from([-60.0, 60.0])),
                source=HERE,
            ),
        )
    return PriorityPolicy(
        name=name,
        source=HERE,
        match=draw(matches()),
        exclude=draw(st.none() | st.none() | matches()),
        conditions=draw(
            st.just(())
            | st.builds(MatchCondition, st.just("c"), st.sampled_from(EXPRESSIONS), st.just(HERE)).map(
                lambda one: (one,)
            )
        ),
        rules=drawn,
        exceptions=exceptions,
    )


@st.composite
def policy_sets(draw: Any) -> Policies:
    """One to three PriorityPolicies, and at most one PreemptionPolicy with twins."""
    names = ["p", "q", "r"][: draw(st.integers(1, 3))]
    twins = draw(st.just({}) | st.just({"high": "online-a"}) | st.just({"high": "online-b", "low": "online-a"}))
    managed = draw(some(["online-*", "batch", "system-*"]) | st.just(()))
    pairs = draw(st.none() | st.builds(lambda labels: (PreemptionPair(victims=PodsMatch(labels=labels)),), selectors))
    preemption = (
        PreemptionPolicy(
            name="m",
            source=HERE,
            preemptors=Preemptors(priority_classes=managed, twins=twins),
            victims=Victims(pairs=pairs),
            groups=Groups(disruption=draw(st.sampled_from(GroupDisruption))),
        ),
    )
    return Policies(
        priority=tuple(draw(priority_policies(name)) for name in names),
        preemption=preemption if draw(st.booleans()) else (),
    )


@st.composite
def clusters(draw: Any) -> list[dict[str, Any]]:
    """PriorityClasses with values and annotations of all sorts, and every namespace."""
    objects: list[dict[str, Any]] = []
    default = draw(st.none() | st.none() | st.sampled_from(CLASS_NAMES))
    missing = draw(st.lists(st.sampled_from(CLASS_NAMES), max_size=1))
    for name in (one for one in CLASS_NAMES if one not in missing):
        annotations = draw(
            st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["true", "30", "false", ""]), max_size=2)
        )
        one = {
            "kind": "PriorityClass",
            "metadata": {"name": name, "annotations": annotations},
            "globalDefault": name == default,
        }
        objects.append(
            one
            | {
                "value": draw(st.sampled_from([0, 10, 60, 100])),
                "preemptionPolicy": draw(st.sampled_from(["Never", "PreemptLowerPriority"])),
            }
        )
    for name in NAMESPACES:
        labels = draw(
            st.dictionaries(st.sampled_from(["app", "tier", "owner"]), st.sampled_from(["web", "gold", ""]), max_size=2)
        )
        objects.append({"kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    return objects


GROUP_LABEL, GROUP_ANNOTATION = "jobset.sigs.k8s.io/jobset-name", "scheduling.k8s.io/group-name"
labels = st.dictionaries(
    st.sampled_from(["app", "tier", GROUP_LABEL]), st.sampled_from(["web", "db", "gold", ""]), max_size=2
)
annotation_sets = st.dictionaries(
    st.sampled_from([*KEYS, values.PLAN, values.DECISION, GROUP_ANNOTATION]),
    st.sampled_from(["true", "30", "", 'a "quoted" one', "two\nlines", "long" * 100]),
    max_size=2,
)


forged = (
    st.just({})
    | st.sampled_from(['{"class":"low"}', '{"copied":{"example.com/x":"true"}}', "{", ""]).map(
        lambda text: {values.GIVEN: text}
    )
    | st.sampled_from(['{"labels":{"app":"db"}}', "{}", '{"absent":["app"]}']).map(lambda text: {values.CREATION: text})
)


@st.composite
def pods(draw: Any, *, claiming: bool = True) -> dict[str, Any]:
    """A pod as a client sends it, sometimes with what only giveway writes, or with `claims`."""
    mark = {values.MARK: draw(st.sampled_from([values.MANAGED, "other"]))} if draw(st.integers(0, 5)) == 0 else {}
    found = draw(labels) | mark
    annotations = draw(annotation_sets) | (draw(forged))
    meta: dict[str, Any] = {
        "name": draw(st.sampled_from(["a", "bad"])),
        "namespace": draw(st.sampled_from(NAMESPACES[:3])),
    }
    meta |= {name: part for name, part in (("labels", found), ("annotations", annotations)) if part}
    if draw(st.booleans()):
        meta["ownerReferences"] = [{"kind": "ReplicaSet", "name": "rs", "controller": draw(st.booleans())}]
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}]}
    if draw(st.sampled_from([True, True, False])):
        spec["priorityClassName"] = draw(st.sampled_from(CLASS_NAMES))
    if draw(st.booleans()):
        spec["hostNetwork"] = True
    said = draw(st.just([]) | claims) if claiming else []
    there = "priorityClassName" in spec
    meta["managedFields"] = [
        row for row in said if there or "f:priorityClassName" not in row["fieldsV1"].get("f:spec", {})
    ]
    return {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": spec}


claims = st.lists(
    st.fixed_dictionaries(
        {
            "manager": st.sampled_from(["kubectl", "giveway"]),
            "fieldsV1": st.sampled_from(
                [
                    {"f:metadata": {"f:annotations": {f"f:{values.GIVEN}": {}}}},
                    {"f:metadata": {"f:annotations": {f"f:{values.CREATION}": {}}}},
                    {"f:metadata": {"f:annotations": {f"f:{KEYS[0]}": {}}, "f:labels": {f"f:{values.MARK}": {}}}},
                    {"f:spec": {"f:priorityClassName": {}}},
                    {"f:spec": {}},
                ]
            ),
        }
    ),
    max_size=2,
)
"""What a client may say that other managers set. The API server keeps it, but for fields of the spec that the object
lacks, and adds what the client sets."""


users = st.tuples(st.sampled_from(USERS), some([*GROUPS, "x"]) | st.just(()))
