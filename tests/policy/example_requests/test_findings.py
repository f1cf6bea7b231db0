"""What example requests show of policies: whom a rule lets through, what it never does, and what no rule settles."""

import pytest

from tests.policy.example_requests.builders import (
    ALLOW,
    COPY,
    DEFAULT,
    KEY,
    NOT_T,
    RESERVE,
    SHIELD,
    SYSTEM,
    condition,
    excepted,
    policy,
    told,
    validate,
)
from webhook.policy.files.loading import load_texts
from webhook.policy.shapes.findings import Severity


def labels(*rows):
    """A match by the labels of the object."""
    return f"{{objectSelector: {{matchLabels: {{{', '.join(rows)}}}}}}}"


def spaces(*names):
    """A match by namespaces."""
    return f"{{namespaces: [{', '.join(map(repr, names))}]}}"


def used(*rights):
    """A range with these rights to use it."""
    return policy(f"reserve: {{from: 100, to: 200, use: [{', '.join(rights)}]}}")


def defined(names):
    """A range that classes of these names may be defined in."""
    return policy(f"reserve: {{from: 100, to: 200, define: {{names: ['{names}']}}, use: {{namespaces: [a]}}}}")


def out(having="", gets="gets 100", where="some-namespace", made="made"):
    """That anybody gets round the rule, with such a pod."""
    return f"p/r can be got round: a pod{having and ' with '}{having} in {where}, {made} by anybody, {gets}"


NOBODY = "p/r refuses no pod: a pod in some-namespace, made by anybody, gets 100"
NOTHING = "p/r does nothing"
EVERYTHING = "p/r refuses everything: a pod in some-namespace"
REFUSED = f"{EVERYTHING}, made by anybody, is refused: "
NEEDLESS = " of policy p makes no difference"
CLASS = "gets PriorityClass c"
OF_A_CONTROLLER = "a pod in kube-system, made by system:serviceaccount:kube-system:replicaset-controller, is refused:"
THREE = (
    '!(object.metadata.labels[?"a"].orValue("") == "1" && object.metadata.labels[?"b"].orValue("") == "2"'
    " && object.spec.?hostNetwork.orValue(false))"
)
GUARDED = "protectAnnotations: {keys: [e.com/k], allow: {objectSelector: {matchLabels: {a: b}}}}"
CONDITIONS = {
    "a label": ('!("skip" in object.metadata.labels)', "the label skip=x"),
    "an annotation": ('object.metadata.annotations[?"e.com/off"].orValue("") != "yes"', "the annotation e.com/off=yes"),
    "a pattern": (
        r'!object.metadata.annotations[?"team"].orValue("").matches("^ops-[0-9]{2}\\.[^a]$")',
        "the annotation team=ops-00.~",
    ),
    "the scheduler": ('object.spec.schedulerName == "default-scheduler"', 'spec.schedulerName "x"'),
    "the name": ('!request.name.startsWith("debug-")', 'metadata.name "debug-a"'),
    "owners": ("object.metadata.?ownerReferences.orValue([]).size() == 0", 'metadata.ownerReferences [{"name": "a"}]'),
    "containers": ("object.spec.containers.size() == 1", "2 spec.containers"),
    "an image": (
        'object.spec.containers.all(c, !c.image.startsWith("trusted/"))',
        'spec.containers[].image "trusted/a"',
    ),
    "three things together": (THREE, "spec.hostNetwork true and the label b=2 and the label a=1"),
}
SURPRISING = {
    "a label lets out": (policy(RESERVE, exclude=labels("canary: a")), out("the label canary=a")),
    "a label lets out in one namespace": (
        policy(RESERVE, exclude=labels("skip: a")[:-1] + ", namespaces: ['team-*']}"),
        out("the label skip=a", where="team-a"),
    ),
    "two labels together let out": (
        policy(RESERVE, exclude=labels("a: b", "c: d")),
        out("the label a=b and the label c=d"),
    ),
    "who has no label is not meant": (policy(RESERVE, match=labels("tier: x")), out()),
    **{
        f"a condition on {what}": (policy(ALLOW, **condition(text)), out(having, CLASS))
        for what, (text, having) in CONDITIONS.items()
    },
    "an exclusion from a shield": (
        policy(SHIELD, exclude=labels("app: x")),
        out("the annotation example.com/k=true and the label app=x", "is let in", made="changed"),
    ),
    "an exception by label": (policy(ALLOW, **excepted(labels("old: x"))), out("the label old=x", CLASS)),
    "a right by label": (used(labels("urgent: x")), out("the label urgent=x")),
    "a right of all namespaces but some": (used(NOT_T), out()),
    "a range that is reserved in some namespaces": (policy(RESERVE, match=spaces("kube-system")), out()),
    "a name that anybody may choose": (
        defined("urgent-*"),
        "p/r can be got round: PriorityClass urgent-a of value 100, defined by anybody, is let in",
    ),
    "any name": (
        defined("*"),
        "p/r refuses no PriorityClass: PriorityClass c of value 100, defined by anybody, is let in",
    ),
    "everybody has a right": (used(spaces("a"), "{}"), NOBODY),
    "an empty selector excludes": (policy(RESERVE, exclude="{namespaceSelector: {}}"), NOBODY),
    "a priority cannot change": (policy(RESERVE, match="{operations: [UPDATE]}"), NOBODY),
    "what is matched is excluded": (
        policy(ALLOW, match=spaces("a"), exclude=spaces("a*")),
        f"{NOTHING}: a pod in a, made by anybody, gets PriorityClass c",
    ),
    "a condition that is never true": (policy(ALLOW, **condition("false")), NOTHING),
    "an exception for everybody": (policy(ALLOW, **excepted(spaces("*"))), NOTHING),
    "annotations are copied to new pods only": (policy(COPY, match="{operations: [UPDATE]}"), NOTHING),
    "a shield of changes under a match of new pods": (policy(SHIELD, match="{operations: [CREATE]}"), NOTHING),
    "an expression that is always true": (policy(validate("object.spec.containers.size() >= 0")), NOTHING),
    "an earlier default is for more pods": (
        policy(DEFAULT, name="a") + "---\n" + policy(DEFAULT, match="{namespaces: [b]}"),
        f"{NOTHING}: a pod in b, made by anybody, is let in",
    ),
    "an expression that is always false": (
        policy(validate('object.metadata.name == "a" && object.metadata.name == "b"')),
        f"{REFUSED}m (rule p/r)",
    ),
    "nothing is allowed": (policy("priorityClasses: {allow: []}"), EVERYTHING),
    "a kind that is never judged": (policy(validate('object.kind == "Deployment"')), "p/r refuses everything"),
    "an expression that fails for new pods": (
        policy(validate("oldObject.spec.nodeName == object.spec.nodeName")),
        f"{REFUSED}rule p/r could not be evaluated",
    ),
    "a right to an annotation by label": (
        policy(GUARDED),
        out("the annotation e.com/k=true and the label a=b", "", made="changed"),
    ),
    "two lists that have no class in common": (
        policy("priorityClasses: {allow: [a]}", "priorityClasses: {allow: [b]}", match="{namespaces: [x]}"),
        'p/r and other rules together refuse everything: a pod in x, made by anybody, is refused: PriorityClass "c"',
    ),
    "an exclusion of all namespaces without a label": (policy(ALLOW, exclude=NOT_T), out(gets=CLASS)),
    "a condition that fails": (
        policy(RESERVE, **condition('namespaceObject.metadata.labels["team"] == "a"')),
        "a pod in some-namespace, made by anybody, is refused: condition c of policy p could not be evaluated",
    ),
    "values that no class can have": (
        policy("reserve: {from: 1500000000, to: 1600000000}"),
        "p/r reserves values that no class can have; above one billion there are only [2000001000, 2000000000]",
    ),
    "Kubernetes' own pods are refused": (policy('priorityClasses: {allow: ["btach-*"]}'), OF_A_CONTROLLER),
    "pods without a class are refused": (
        policy("reserve: {from: 0, to: 1000, use: {namespaces: [a]}}"),
        f"{OF_A_CONTROLLER} priority 0",
    ),
    "Kubernetes' own classes are refused": (
        policy("reserve: {from: 1000000001, to: 2147483647, use: {namespaces: [kube-system]}}"),
        "PriorityClass system-node-critical of value 2000001000 with description",
    ),
    "changes of classes are not looked at": (
        policy(RESERVE, match="{operations: [CREATE]}"),
        f"p/r can be got round: PriorityClass c of value 100 with the annotation {KEY}=true, changed by anybody, is",
    ),
    "the default is refused by another policy": (
        f"{policy('defaultPriorityClass: x')}---\n{policy(ALLOW, name='q')}",
        "a pod in some-namespace, made by anybody, gets x by p/r and is refused: ",
    ),
    "the default is one of Kubernetes' own": (
        f"{policy('defaultPriorityClass: system-node-critical')}---\n{SYSTEM.replace('name: p', 'name: q')}",
        "a pod in some-namespace, made by anybody, gets system-node-critical by p/r and is refused: ",
    ),
    "a class is allowed and denied": (
        policy("priorityClasses: {allow: [a, system-node-critical], deny: [a]}"),
        f"priorityClasses.allow[0]{NEEDLESS}",
    ),
    "what is denied is not allowed anyway": (
        policy("priorityClasses: {allow: [a, system-node-critical], deny: [b]}"),
        f"priorityClasses.deny[0]{NEEDLESS}",
    ),
    "an empty exclusion": (policy(ALLOW, exclude="{}"), f"exclude{NEEDLESS}"),
    "a name that the API server keeps": (
        policy('reserve: {from: 100, to: 200, define: {names: ["system-*"]}}'),
        f"reserve.define[0]{NEEDLESS}",
    ),
    "an exclusion of what is not matched": (
        policy(ALLOW, match=spaces("a"), exclude=spaces("b")),
        f"exclude{NEEDLESS}",
    ),
    "a condition that is always true": (policy(ALLOW, **condition("has(object.metadata)")), f"conditions[0]{NEEDLESS}"),
    "an exception from what is not refused": (
        policy(ALLOW, match=spaces("a"), **excepted(spaces("b"))),
        f"exceptions[0]{NEEDLESS}",
    ),
    "a right of no pod": (used(spaces("a"), spaces("b.c")), f"reserve.use[1]{NEEDLESS}"),
}


@pytest.mark.parametrize("name", SURPRISING)
def test_what_would_surprise_is_shown(name):
    """The finding has a request that anybody can make, and what becomes of it."""
    text, expected = SURPRISING[name]
    found = told(text)
    assert any(message.startswith(expected) for message in found), "\n".join(found)


PLATFORM = "subjects: [{kind: Group, name: platform}]"
BY_CONTROLLER = "made by system:serviceaccount:kube-system:replicaset-controller, and not about a pod"
BY_MEMBER = "made by a member of platform, and not about a pod"
CHANGED = BY_CONTROLLER.replace("made", "changed", 1)
REFUSING = validate("has(object.spec.nodeSelector)")
RIGHTS = {
    "people": f"{{{PLATFORM}}}",
    "people beside one by namespace": f"[{{namespaces: [a]}}, {{{PLATFORM}}}]",
    "people in every namespace": f"{{namespaces: ['*'], {PLATFORM}}}",
    "a service account": "{subjects: [{kind: ServiceAccount, namespace: ci, name: runner}]}",
    "a group of service accounts": "{subjects: [{kind: Group, name: 'system:serviceaccounts:ci'}]}",
}
NEW_PODS = f"protectAnnotations: {{keys: [{KEY}], operations: [CREATE], allow: {{{PLATFORM}}}}}"
APART = {
    **{
        f"a right of {who}": (f"reserve: {{from: 1, to: 9, use: {right}}}", {}, BY_CONTROLLER)
        for who, right in RIGHTS.items()
    },
    "a right of people to annotate new pods": (NEW_PODS, {}, BY_CONTROLLER),
    "a rule on trial for people": (ALLOW, {"match": f"{{{PLATFORM}}}", "enforcement": "warn"}, BY_CONTROLLER),
    "a default for people": (DEFAULT, {"match": f"{{{PLATFORM}}}"}, BY_MEMBER),
    "people of a namespace": (REFUSING, {"match": f"{{namespaces: [a], {PLATFORM}}}"}, BY_CONTROLLER),
    "changes by people": (REFUSING, {"match": f"{{operations: [UPDATE], {PLATFORM}}}"}, CHANGED),
    "all but people": (REFUSING, {"exclude": f"{{{PLATFORM}}}"}, BY_CONTROLLER),
    "an exception for people": (REFUSING, excepted(f"{{{PLATFORM}}}"), BY_CONTROLLER),
    "a condition on who asks": (REFUSING, condition('request.userInfo.username == "b"'), "made by b, and not about a"),
    "an expression about who asks": (validate('"platform" in request.userInfo.groups'), {}, BY_CONTROLLER),
}


@pytest.mark.parametrize("name", APART)
def test_the_author_of_a_workload_and_who_makes_its_pods(name):
    """A rule that treats them differently is shown by a pod that each of them makes."""
    body, parts, expected = APART[name]
    found = told(policy(body, **parts))
    assert any("p/r is about a pod" in message and expected in message for message in found), "\n".join(found)


def test_a_right_that_no_service_account_has():
    """A glob of service accounts gives a right to none of them."""
    right = "{subjects: [{kind: ServiceAccount, namespace: operators, name: '*'}]}"
    (found,) = told(policy(f"reserve: {{from: 1, to: 9, use: {right}}}"))
    assert found.startswith("reserve.use[0] of policy p makes no difference")


TEAM = 'object.metadata.namespace != "x" || object.metadata.labels[?"team"].orValue("").matches("^t-[a-z]+$")'
SECONDS = 'int(object.metadata.annotations[?"e.com/s"].orValue("0")) <= 3600'
STAYS = 'oldObject == null || object.metadata.labels[?"t"] == oldObject.metadata.labels[?"t"]'
REGISTRY = 'object.spec.containers.all(c, c.image.startsWith("r.example.com/"))'
IN_COMMON = ('priorityClasses: {allow: ["b-*", x]}', "priorityClasses: {allow: [b-y]}")
LISTED = 'priorityClasses: {allow: [x, "b-*"], deny: ["b-x*"]}'
UNSURPRISING = {
    "a range": policy(RESERVE),
    "a range by the namespace's label": used("{namespaceSelector: {matchLabels: {b: c}}}"),
    "a range for nobody": policy("reserve: {from: 100, to: 200}"),
    "a range with an exclusion by namespace": policy(RESERVE, exclude=spaces("b-*")),
    "the system's range": SYSTEM,
    "classes of some namespaces": policy(LISTED, match=spaces("t-*")),
    "two lists with a class in common": policy(*IN_COMMON, match=spaces("x")),
    "classes but for a namespace": policy("priorityClasses: {deny: [x]}", exclude=spaces("b")),
    "what the namespace says": policy(ALLOW, **condition('!("c" in namespaceObject.metadata.labels)')),
    "an exception": policy(ALLOW, **excepted(spaces("b"))),
    "a shield": policy(SHIELD),
    "a shield for leads": policy(SHIELD.replace("}", ", allow: {subjects: [{kind: Group, name: l}]}}")),
    "a default": policy(DEFAULT, match="{namespaceSelector: {matchLabels: {a: b}}}"),
    "a copy": policy(COPY),
    "a label that is asked for": policy(validate(TEAM)),
    "several labels": policy(validate('["a", "b"].all(k, k in object.metadata.labels)'), match=spaces("x")),
    "images of a registry": policy(validate(REGISTRY), match=spaces("x")),
    "pods with a label, for which more holds": policy(REFUSING, match=labels("gpu: x")),
    "a bound on seconds": policy(validate(SECONDS), match=spaces("x")),
    "what stays as it is": policy(validate(STAYS)),
    "classes with a description": policy(validate("has(object.description)", ", resources: [priorityclasses]")),
    "requests in earnest": policy(ALLOW, **condition("request.?dryRun.orValue(false) == false")),
    "pods and not their templates": policy(ALLOW, **condition('request.kind.kind == "Pod"')),
    "people of a namespace that have a right": used(f"{{namespaces: [a], {PLATFORM}}}"),
    "who may annotate a pod that runs": policy(f"protectAnnotations: {{keys: [{KEY}], allow: {{{PLATFORM}}}}}"),
    "an exclusion of people in a namespace": policy(ALLOW, exclude=f"{{namespaces: [a], {PLATFORM}}}"),
    "a rule on trial": policy(ALLOW, enforcement="warn", match=labels("a: b")),
}


@pytest.mark.parametrize("name", UNSURPRISING)
def test_what_is_meant_is_let_be(name):
    """No finding about policies that do what they seem to say."""
    assert told(UNSURPRISING[name]) == []


def test_a_rule_that_another_one_makes_safe():
    """The set is asked as a whole: who may not set the label cannot let himself out by it."""
    right = used(labels("urgent: x"))
    guard = policy(validate('object.metadata.namespace == "a" || !("urgent" in object.metadata.labels)'), name="q")
    assert told(right)
    assert told(right, guard) == []


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
