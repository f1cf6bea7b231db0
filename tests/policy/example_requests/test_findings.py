"""What example requests show of policies: whom a rule lets through, what it never does, and what it breaks."""

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

ROUND = "p/r can be got round: "
SURPRISING = {
    "a label lets out": (
        policy(RESERVE, exclude='{objectSelector: {matchLabels: {canary: "true"}}}'),
        ROUND + "a pod with the label canary=true in some-namespace, made by anybody, gets 100",
    ),
    "a label lets out in one namespace": (
        policy(RESERVE, exclude='{objectSelector: {matchLabels: {skip: "true"}}, namespaces: ["team-*"]}'),
        ROUND + "a pod with the label skip=true in team-a, made by anybody, gets 100",
    ),
    "two labels together let out": (
        policy(RESERVE, exclude="{objectSelector: {matchLabels: {a: b, c: d}}}"),
        ROUND + "a pod with the label a=b and the label c=d in some-namespace, made by anybody, gets 100",
    ),
    "who has no label is not meant": (
        policy(RESERVE, match="{objectSelector: {matchLabels: {tier: x}}}"),
        ROUND + "a pod in some-namespace, made by anybody, gets 100",
    ),
    "a condition on a label": (
        policy(RESERVE, **condition('!("skip" in object.metadata.labels)')),
        ROUND + "a pod with the label skip=x in some-namespace, made by anybody, gets 100",
    ),
    "a condition on an annotation": (
        policy(ALLOW, **condition('object.metadata.annotations[?"e.com/off"].orValue("") != "yes"')),
        ROUND + "a pod with the annotation e.com/off=yes in some-namespace, made by anybody, gets PriorityClass c",
    ),
    "a condition on the scheduler": (
        policy(ALLOW, **condition('object.spec.schedulerName == "default-scheduler"')),
        ROUND + 'a pod with spec.schedulerName "x" in some-namespace, made by anybody, gets PriorityClass c',
    ),
    "a condition on the name": (
        policy(ALLOW, **condition('!request.name.startsWith("debug-")')),
        ROUND + 'a pod with metadata.name "debug-a" in some-namespace, made by anybody, gets PriorityClass c',
    ),
    "a condition on owners": (
        policy(ALLOW, **condition("object.metadata.?ownerReferences.orValue([]).size() == 0")),
        ROUND + 'a pod with metadata.ownerReferences [{"name": "a"}] in some-namespace, made by anybody, gets',
    ),
    "a condition on containers": (
        policy(ALLOW, **condition("object.spec.containers.size() == 1")),
        ROUND + "a pod with 2 spec.containers in some-namespace, made by anybody, gets PriorityClass c",
    ),
    "a condition on an image": (
        policy(ALLOW, **condition('object.spec.containers.all(c, !c.image.startsWith("trusted/"))')),
        ROUND + 'a pod with spec.containers[].image "trusted/a" in some-namespace, made by anybody, gets',
    ),
    "a condition on three things together": (
        policy(
            ALLOW,
            **condition(
                '!(object.metadata.labels[?"a"].orValue("") == "1" && object.metadata.labels[?"b"].orValue("") == "2"'
                " && object.spec.?hostNetwork.orValue(false))"
            ),
        ),
        ROUND + "a pod with spec.hostNetwork true and the label b=2 and the label a=1 in some-namespace, made by any",
    ),
    "an exclusion from a shield": (
        policy(SHIELD, exclude="{objectSelector: {matchLabels: {app: x}}}"),
        ROUND
        + "a pod with the annotation example.com/k=true and the label app=x in some-namespace, changed by anybody",
    ),
    "an exclusion from an expression": (
        policy(
            validate("object.spec.?hostNetwork.orValue(false) == false"),
            exclude="{objectSelector: {matchLabels: {app: x}}}",
        ),
        ROUND + "a pod with spec.hostNetwork true and the label app=x in some-namespace, made by anybody, is let in",
    ),
    "an exception by label": (
        policy(
            ALLOW,
            **excepted("{objectSelector: {matchLabels: {old: x}}}"),
        ),
        ROUND + "a pod with the label old=x in some-namespace, made by anybody, gets PriorityClass c",
    ),
    "a right by label": (
        policy("reserve: {from: 100, to: 200, use: {objectSelector: {matchLabels: {urgent: x}}}}"),
        ROUND + "a pod with the label urgent=x in some-namespace, made by anybody, gets 100",
    ),
    "a right of all namespaces but some": (
        policy(f"reserve: {{from: 100, to: 200, use: {NOT_T}}}"),
        ROUND + "a pod in some-namespace, made by anybody, gets 100",
    ),
    "a range that is reserved in some namespaces": (
        policy(RESERVE, match="{namespaces: [kube-system]}"),
        ROUND + "a pod in some-namespace, made by anybody, gets 100",
    ),
    "a name that anybody may choose": (
        policy('reserve: {from: 100, to: 200, define: {names: ["urgent-*"]}}'),
        ROUND + "PriorityClass urgent-a of value 100, defined by anybody, is let in",
    ),
    "any name": (
        policy('reserve: {from: 100, to: 200, define: {names: ["*"]}, use: {namespaces: [a]}}'),
        "p/r refuses no PriorityClass: PriorityClass c of value 100, defined by anybody, is let in",
    ),
    "everybody has a right": (
        policy("reserve: {from: 100, to: 200, use: [{namespaces: [a]}, {}]}"),
        "p/r refuses no pod: a pod in some-namespace, made by anybody, gets 100",
    ),
    "an empty selector gives a right": (
        policy("reserve: {from: 100, to: 200, use: {namespaceSelector: {}}}"),
        "p/r refuses no pod: a pod in some-namespace, made by anybody, gets 100",
    ),
    "an empty selector excludes": (
        policy(RESERVE, exclude="{namespaceSelector: {}}"),
        "p/r refuses no pod: a pod in some-namespace, made by anybody, gets 100",
    ),
    "what is matched is excluded": (
        policy(ALLOW, match="{namespaces: [a]}", exclude='{namespaces: ["a*"]}'),
        "p/r does nothing: a pod in a, made by anybody, gets PriorityClass c",
    ),
    "a selector that contradicts itself": (
        policy(
            ALLOW,
            match="{namespaceSelector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: DoesNotExist}]}}",
        ),
        "p/r does nothing",
    ),
    "a regular expression for a glob": (
        policy(ALLOW, match='{namespaces: ["team-.*"]}'),
        "p/r does nothing",
    ),
    "a condition that is never true": (policy(ALLOW, **condition("false")), "p/r does nothing"),
    "a condition that contradicts itself": (
        policy(ALLOW, **condition('object.metadata.namespace == "a" && object.metadata.namespace == "b"')),
        "p/r does nothing",
    ),
    "an exception for everybody": (
        policy(ALLOW, **excepted('{namespaces: ["*"]}')),
        "p/r does nothing",
    ),
    "a priority cannot change": (
        policy(RESERVE, match="{operations: [UPDATE]}"),
        "p/r refuses no pod: a pod in some-namespace, made by anybody, gets 100",
    ),
    "annotations are copied to new pods only": (policy(COPY, match="{operations: [UPDATE]}"), "p/r does nothing"),
    "a shield of changes under a match of new pods": (
        policy(SHIELD, match="{operations: [CREATE]}"),
        "p/r does nothing",
    ),
    "an expression that is always true": (policy(validate("object.spec.containers.size() >= 0")), "p/r does nothing"),
    "an expression that is always false": (
        policy(validate('object.metadata.name == "a" && object.metadata.name == "b"')),
        "p/r refuses everything: a pod in some-namespace, made by anybody, is refused: m (rule p/r)",
    ),
    "nothing is allowed": (policy("priorityClasses: {allow: []}"), "p/r refuses everything: a pod in some-namespace"),
    "a class is allowed and denied": (
        policy("priorityClasses: {allow: [a, system-node-critical], deny: [a]}"),
        "priorityClasses.allow[0] of policy p makes no difference",
    ),
    "an empty exclusion": (policy(ALLOW, exclude="{}"), "exclude of policy p makes no difference"),
    "a right by any label": (
        policy("reserve: {from: 100, to: 200, use: {namespaces: ['*'], objectSelector: {}}}"),
        "p/r refuses no pod: a pod in some-namespace, made by anybody, gets 100",
    ),
    "a right to an annotation by label": (
        policy("protectAnnotations: {keys: [e.com/k], allow: {objectSelector: {matchLabels: {a: b}}}}"),
        ROUND + "a pod with the annotation e.com/k=true and the label a=b in some-namespace, changed by anybody",
    ),
    "two lists that have no class in common": (
        policy("priorityClasses: {allow: [a]}", "priorityClasses: {allow: [b]}", match="{namespaces: [x]}"),
        'p/r and other rules together refuse everything: a pod in x, made by anybody, is refused: PriorityClass "c"',
    ),
    "an exclusion of all namespaces without a label": (
        policy(ALLOW, exclude=NOT_T),
        ROUND + "a pod in some-namespace, made by anybody, gets PriorityClass c",
    ),
    "an expression that fails for new pods": (
        policy(validate("oldObject.spec.nodeName == object.spec.nodeName")),
        "p/r refuses everything: a pod in some-namespace, made by anybody, is refused: rule p/r could not be evaluated",
    ),
    "a condition that fails": (
        policy(RESERVE, **condition('namespaceObject.metadata.labels["team"] == "a"')),
        "a pod in some-namespace, made by anybody, is refused: condition c of policy p could not be evaluated",
    ),
    "values that no class can have": (
        policy("reserve: {from: 1500000000, to: 1600000000}"),
        "p/r reserves values that no class can have; above one billion there are only [2000001000, 2000000000]",
    ),
    "Kubernetes' own pods are refused": (
        policy('priorityClasses: {allow: ["btach-*"]}'),
        "a pod in kube-system, made by system:serviceaccount:kube-system:replicaset-controller, is refused:",
    ),
    "Kubernetes' own classes are refused": (
        policy("reserve: {from: 1000000001, to: 2147483647, use: {namespaces: [kube-system]}}"),
        "PriorityClass system-node-critical of value 2000001000 with description",
    ),
    "pods without a class are refused": (
        policy("reserve: {from: 0, to: 1000, use: {namespaces: [a]}}"),
        "a pod in kube-system, made by system:serviceaccount:kube-system:replicaset-controller, is refused: priority 0",
    ),
    "changes of classes are not looked at": (
        policy(RESERVE, match="{operations: [CREATE]}"),
        f"{ROUND}PriorityClass c of value 100 with the annotation {KEY}=true, changed by anybody, is let in",
    ),
    "the default is refused by another policy": (
        f"{policy('defaultPriorityClass: x')}---\n{policy(ALLOW, name='q')}",
        "a pod in some-namespace, made by anybody, gets x by p/r and is refused: ",
    ),
    "an earlier default is for more pods": (
        policy(DEFAULT, name="a") + "---\n" + policy(DEFAULT, match="{namespaces: [b]}"),
        "p/r does nothing: a pod in b, made by anybody, is let in",
    ),
    "two names for one namespace": (
        policy(ALLOW, match="{namespaces: [a], namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: b}}}"),
        "p/r does nothing",
    ),
    "a kind that is never judged": (policy(validate('object.kind == "Deployment"')), "p/r refuses everything"),
    "a name that the API server keeps": (
        policy('reserve: {from: 100, to: 200, define: {names: ["system-*"]}}'),
        "reserve.define[0] of policy p makes no difference",
    ),
    "what is denied is not allowed anyway": (
        policy("priorityClasses: {allow: [a, system-node-critical], deny: [b]}"),
        "priorityClasses.deny[0] of policy p makes no difference",
    ),
    "an exclusion of what is not matched": (
        policy(ALLOW, match="{namespaces: [a]}", exclude="{namespaces: [b]}"),
        "exclude of policy p makes no difference",
    ),
    "a condition that is always true": (
        policy(ALLOW, **condition("has(object.metadata)")),
        "conditions[0] of policy p makes no difference",
    ),
    "an exception from what is not refused": (
        policy(
            ALLOW,
            match="{namespaces: [a]}",
            **excepted("{namespaces: [b]}"),
        ),
        "exceptions[0] of policy p makes no difference",
    ),
    "a right of no pod": (
        policy("reserve: {from: 100, to: 200, use: [{namespaces: [a]}, {namespaces: [b.c]}]}"),
        "reserve.use[1] of policy p makes no difference",
    ),
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
REFUSING = validate("has(object.spec.nodeSelector)")
APART = {
    "a right of people": (f"reserve: {{from: 1, to: 9, use: {{{PLATFORM}}}}}", {}, BY_CONTROLLER),
    "a right of people beside one by namespace": (
        f"reserve: {{from: 1, to: 9, use: [{{namespaces: [a]}}, {{{PLATFORM}}}]}}",
        {},
        BY_CONTROLLER,
    ),
    "a right of people in every namespace": (
        f"reserve: {{from: 1, to: 9, use: {{namespaces: ['*'], {PLATFORM}}}}}",
        {},
        BY_CONTROLLER,
    ),
    "a right of a service account": (
        "reserve: {from: 1, to: 9, use: {subjects: [{kind: ServiceAccount, namespace: ci, name: runner}]}}",
        {},
        BY_CONTROLLER,
    ),
    "a right of a group of service accounts": (
        "reserve: {from: 1, to: 9, use: {subjects: [{kind: Group, name: 'system:serviceaccounts:ci'}]}}",
        {},
        BY_CONTROLLER,
    ),
    "a right of people to annotate new pods": (
        f"protectAnnotations: {{keys: [{KEY}], operations: [CREATE], allow: {{{PLATFORM}}}}}",
        {},
        BY_CONTROLLER,
    ),
    "a rule on trial for people": (ALLOW, {"match": f"{{{PLATFORM}}}", "enforcement": "warn"}, BY_CONTROLLER),
    "a default for people": (DEFAULT, {"match": f"{{{PLATFORM}}}"}, BY_MEMBER),
    "people of a namespace": (REFUSING, {"match": f"{{namespaces: [a], {PLATFORM}}}"}, BY_CONTROLLER),
    "changes by people": (
        REFUSING,
        {"match": f"{{operations: [UPDATE], {PLATFORM}}}"},
        "changed by system:serviceaccount:kube-system:replicaset-controller, and not about a pod",
    ),
    "all but people": (REFUSING, {"exclude": f"{{{PLATFORM}}}"}, BY_CONTROLLER),
    "an exception for people": (REFUSING, excepted(f"{{{PLATFORM}}}"), BY_CONTROLLER),
    "a condition on who asks": (REFUSING, condition('request.userInfo.username == "b"'), "made by b, and not about a"),
    "an expression about who asks": (
        validate('"platform" in request.userInfo.groups'),
        {},
        BY_CONTROLLER,
    ),
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


UNSURPRISING = {
    "a range": policy(RESERVE),
    "a range by the namespace's label": policy(
        "reserve: {from: 100, to: 200, use: {namespaceSelector: {matchLabels: {b: c}}}}"
    ),
    "a range for nobody": policy("reserve: {from: 100, to: 200}"),
    "a range with an exclusion by namespace": policy(RESERVE, exclude='{namespaces: ["b-*"]}'),
    "the system's range": SYSTEM,
    "classes of some namespaces": policy(
        'priorityClasses: {allow: [x, "b-*"], deny: ["b-x*"]}', match='{namespaces: ["t-*"]}'
    ),
    "two lists with a class in common": policy(
        'priorityClasses: {allow: ["b-*", x]}', "priorityClasses: {allow: [b-y]}", match="{namespaces: [x]}"
    ),
    "classes but for a namespace": policy("priorityClasses: {deny: [x]}", exclude="{namespaces: [b]}"),
    "what the namespace says": policy(ALLOW, **condition('!("c" in namespaceObject.metadata.labels)')),
    "an exception": policy(ALLOW, **excepted("{namespaces: [b]}")),
    "a shield": policy(SHIELD),
    "a shield for leads": policy(
        "protectAnnotations: {keys: [example.com/k], allow: {subjects: [{kind: Group, name: l}]}}"
    ),
    "a default": policy("defaultPriorityClass: x", match="{namespaceSelector: {matchLabels: {a: b}}}"),
    "a copy": policy(COPY),
    "a label that is asked for": policy(
        validate(
            'object.metadata.namespace != "x" || object.metadata.labels[?"team"].orValue("").matches("^t-[a-z]+$")'
        )
    ),
    "several labels that are asked for": policy(
        validate('["a", "b"].all(k, k in object.metadata.labels)'), match="{namespaces: [x]}"
    ),
    "images of a registry": policy(
        validate('object.spec.containers.all(c, c.image.startsWith("r.example.com/"))'), match="{namespaces: [x]}"
    ),
    "pods with a label, for which more holds": policy(
        validate("has(object.spec.nodeSelector)"), match="{objectSelector: {matchLabels: {gpu: x}}}"
    ),
    "a bound on seconds": policy(
        validate('int(object.metadata.annotations[?"e.com/s"].orValue("0")) <= 3600'), match="{namespaces: [x]}"
    ),
    "what stays as it is": policy(
        validate('oldObject == null || object.metadata.labels[?"t"] == oldObject.metadata.labels[?"t"]')
    ),
    "classes with a description": policy(validate("has(object.description)", ", resources: [priorityclasses]")),
    "requests in earnest": policy(ALLOW, **condition("request.?dryRun.orValue(false) == false")),
    "pods and not their templates": policy(ALLOW, **condition('request.kind.kind == "Pod"')),
    "people of a namespace that have a right": policy(
        f"reserve: {{from: 100, to: 200, use: {{namespaces: [a], {PLATFORM}}}}}"
    ),
    "who may annotate a pod that runs": policy(f"protectAnnotations: {{keys: [{KEY}], allow: {{{PLATFORM}}}}}"),
    "an exclusion of people in a namespace": policy(ALLOW, exclude=f"{{namespaces: [a], {PLATFORM}}}"),
    "a rule on trial": policy(ALLOW, enforcement="warn", match="{objectSelector: {matchLabels: {a: b}}}"),
}


@pytest.mark.parametrize("name", UNSURPRISING)
def test_what_is_meant_is_let_be(name):
    """No finding about policies that do what they seem to say."""
    assert told(UNSURPRISING[name]) == []


def test_a_rule_that_another_one_makes_safe():
    """The set is asked as a whole: who may not set the label cannot let himself out by it."""
    right = policy("reserve: {from: 100, to: 200, use: {objectSelector: {matchLabels: {urgent: x}}}}")
    guard = policy(validate('object.metadata.namespace == "a" || !("urgent" in object.metadata.labels)'), name="q")
    assert told(right)
    assert told(right, guard) == []
