"""What example pods show of PreemptionPolicies: who chooses to evict or to stay, and what does nothing."""

import pytest

from tests.cases import table
from tests.policy.builders import document
from tests.policy.example_requests.builders import policy as priority
from tests.policy.example_requests.builders import validate
from webhook.policy.files.loading import load_texts
from webhook.policy.shapes.findings import Severity
from webhook.preemption.example_pods import example_pod_findings

ON = 'priorityClasses: ["online-*"]'
OFF = '{priorityClasses: ["offline-*"]}'
TIER = "{labels: {matchLabels: {tier: batch}}}"
YES = '"yes"'
GOLD = "{labels: {matchLabels: {tier: gold}}}"


def policy(*pairs, preemptors=ON, victims="mode: opt-in", name="m"):
    """A PreemptionPolicy with these pairs, in flow style."""
    rows = f", pairs: [{', '.join(pairs)}]" if pairs else ""
    return document(f"preemptors: {{{preemptors}}}\nvictims: {{{victims}{rows}}}", "PreemptionPolicy", name)


def told(*texts, severity=Severity.WARNING):
    """What is found in these policies, which must be free of errors."""
    loaded = load_texts([(f"{number}.yaml", text) for number, text in enumerate(texts)])
    assert not loaded.errors, "\n".join(map(str, loaded.errors))
    found = example_pod_findings(loaded.policies, 1_700_000_000)
    return [finding.message for finding in found if finding.severity is severity]


def namespaces(selector):
    """A side of a pair by the labels of namespaces."""
    return f"{{namespaceSelector: {{{selector}}}}}"


def expression(operator, key="keep", values=""):
    """One row of matchExpressions."""
    return f"matchExpressions: [{{key: {key}, operator: {operator}{f', values: [{values}]' if values else ''}}}]"


JOINS = "m lets the author of a pod choose to be a preemptor: a pod of PriorityClass "
STAYS = "m lets the author of a pod choose to be no victim: "
NOBODY = "victims.pairs[0] of PreemptionPolicy m lets nobody evict anybody: "
JOINING = {
    "a label makes a preemptor": (
        "online-a with the label tier=gold in some-namespace",
        policy(f"{{preemptors: {GOLD}}}"),
    ),
    "a label makes a preemptor in one namespace": (
        "online-a with the label tier=gold in team-a",
        policy("{preemptors: {namespaces: [team-a], labels: {matchLabels: {tier: gold}}}}"),
    ),
    "a label that is there makes a preemptor": (
        "online-a with the label urgent=x in some-namespace",
        policy(f"{{preemptors: {{labels: {{{expression('Exists', 'urgent')}}}}}}}"),
    ),
    "a label that is left off makes a preemptor": (
        "online-a in some-namespace",
        policy(f"{{preemptors: {{labels: {{{expression('DoesNotExist')}}}}}}}"),
    ),
    "a label beside a class makes a preemptor": (
        "online-x with the label q=y in some-namespace",
        policy(f"{{preemptors: {{priorityClasses: [online-x], labels: {{{expression('In', 'q', 'y, z')}}}}}}}"),
    ),
    "a label makes a preemptor by the second pair": (
        "online-a with the label tier=gold in some-namespace",
        policy(f"{{victims: {OFF}}}", f"{{preemptors: {GOLD}, victims: {{priorityClasses: [standard]}}}}"),
    ),
}
"""Policies, and the pod whose author makes it a preemptor."""
IN_VAIN = {
    "preemptors of a class that is not managed": policy(
        f"{{preemptors: {{priorityClasses: [urgent]}}, victims: {OFF}}}"
    ),
    "preemptors of a class of another policy": policy(f"{{preemptors: {{priorityClasses: [urgent]}}, victims: {OFF}}}")
    + "---\n"
    + policy(preemptors="priorityClasses: [urgent]", name="q"),
    "a pod of its own class": policy(
        "{preemptors: {priorityClasses: [online-a]}, victims: {priorityClasses: [online-a]}}"
    ),
    "a class and its twin": policy(
        "{preemptors: {priorityClasses: [high]}, victims: {priorityClasses: [high-never]}}",
        preemptors="twins: {high: high-never}",
    ),
    "system classes are no victims": policy('{victims: {priorityClasses: ["system-*"]}}', victims="mode: opt-out"),
    "a regular expression for namespaces": policy('{victims: {namespaces: ["team-.*"]}}'),
    "a namespace with a dot": policy("{preemptors: {namespaces: [a.b]}}"),
    "labels that contradict each other": policy(
        f"{{victims: {{labels: {{matchLabels: {{tier: b}}, {expression('DoesNotExist', 'tier')}}}}}}}"
    ),
    "values that contradict each other": policy(
        f"{{victims: {{labels: {{matchLabels: {{tier: b}}, {expression('In', 'tier', 'a, c')}}}}}}}"
    ),
    "labels of namespaces that contradict each other": policy(
        f"{{preemptors: {namespaces('matchLabels: {a: b}, ' + expression('NotIn', 'a', 'b'))}}}"
    ),
    "two names for one namespace": policy(
        "{victims: {namespaces: [a], namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: b}}}}"
    ),
}
"""Policies of which the first pair lets nobody evict anybody."""
NEEDLESS = {
    "a class that no glob means": (
        "preemptors.priorityClasses[1]",
        policy(preemptors='priorityClasses: ["online-*", "urgent-.*"]'),
    ),
    "a class twice": ("preemptors.priorityClasses[1]", policy(preemptors='priorityClasses: ["online-*", online-x]')),
    "pairs that mean everybody": ("victims.pairs[0]", policy("{}")),
    "a pair within another one": (
        "victims.pairs[1]",
        policy(f"{{victims: {OFF}}}", "{preemptors: {namespaces: [a]}, victims: {priorityClasses: [offline-x]}}"),
    ),
    "a pair after one for everybody": ("victims.pairs[1]", policy("{}", f"{{victims: {OFF}}}")),
    "the same pair twice": ("victims.pairs[0]", policy(f"{{victims: {OFF}}}", f"{{victims: {OFF}}}")),
    "any class": (
        "victims.pairs[0].preemptors.priorityClasses",
        policy('{preemptors: {priorityClasses: ["*"]}, victims: {priorityClasses: [offline]}}'),
    ),
    "any namespace": (
        "victims.pairs[0].victims.namespaces",
        policy('{victims: {priorityClasses: [offline], namespaces: ["*"]}}'),
    ),
    "any labels": ("victims.pairs[0].victims.labels", policy("{victims: {priorityClasses: [offline], labels: {}}}")),
    "any labels of the namespace": (
        "victims.pairs[0].preemptors.namespaceSelector",
        policy(f"{{preemptors: {{namespaceSelector: {{}}}}, victims: {OFF}}}"),
    ),
    "the name of a namespace twice": (
        "victims.pairs[0].victims.namespaces",
        policy("{victims: {namespaces: [a], namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: a}}}}"),
    ),
    "one class of a list that is not managed": (
        "victims.pairs[0].preemptors.priorityClasses[1]",
        policy(f"{{preemptors: {{priorityClasses: [online-a, urgent]}}, victims: {OFF}}}"),
    ),
    "one glob of a list that means nothing": (
        "victims.pairs[0].victims.priorityClasses[1]",
        policy('{victims: {priorityClasses: [offline, "offline-.*"]}}'),
    ),
    "one namespace of a list within another": (
        "victims.pairs[0].victims.namespaces[1]",
        policy('{victims: {namespaces: ["team-*", team-x]}}'),
    ),
    "a value that protects and permits": (
        "victims.signals[0].permits[0]",
        policy(victims="signals: [{annotation: e.com/k, protects: [a, b], permits: [a, c]}]"),
    ),
    "a signal after another one of its annotation": (
        "victims.signals[1].permits[0]",
        policy(victims="signals: [{annotation: e.com/k, protects: [a]}, {annotation: e.com/k, permits: [a]}]"),
    ),
    "a value that permits beside any that protects": (
        "victims.signals[0].permits[0]",
        policy(victims='mode: opt-out, signals: [{annotation: e.com/k, protects: ["*"], permits: ["no"]}]'),
    ),
}
"""Parts that make no difference, and policies that have them."""
OTHERS = {
    "every namespace but some has preemptors": (
        "m lets pods of a namespace that it does not name be preemptors: a pod of PriorityClass online-a in some-",
        policy(f"{{preemptors: {namespaces(expression('DoesNotExist', 'guest'))}}}"),
    ),
    "every namespace but one value has preemptors": (
        "m lets pods of a namespace that it does not name be preemptors: a pod of PriorityClass online-a in some-",
        policy(f"{{preemptors: {namespaces(expression('NotIn', 'team', 'guests'))}, victims: {OFF}}}"),
    ),
    "a label that is left off keeps a pod": (
        STAYS + "a pod of PriorityClass some-class with the class annotation godel.bytedance.com/can-be-preempted=true",
        policy(f"{{victims: {TIER}}}"),
    ),
    "a label keeps a pod": (
        STAYS + "a pod of PriorityClass some-class with the label keep=x in some-namespace, made by anybody",
        policy(f"{{victims: {{labels: {{{expression('DoesNotExist')}}}}}}}", victims="mode: opt-out"),
    ),
    "a label of another value keeps a pod": (
        STAYS + "a pod of PriorityClass some-class with the label keep=yes in some-namespace, made by anybody",
        policy(f"{{victims: {{labels: {{{expression('NotIn', 'keep', YES)}}}}}}}", victims="mode: opt-out"),
    ),
    "a label keeps a pod of a class": (
        STAYS + "a pod of PriorityClass offline with the label keep=x in some-namespace, made by anybody",
        policy(
            f"{{victims: {{priorityClasses: [offline], labels: {{{expression('DoesNotExist')}}}}}}}",
            victims="mode: opt-out",
        ),
    ),
    "a scheduler keeps a pod": (
        STAYS + 'a pod of PriorityClass some-class with spec.schedulerName "x" in some-namespace, made by anybody',
        policy(victims="mode: opt-out, schedulerNames: [default-scheduler]"),
    ),
    "a scheduler keeps a pod of two": (
        STAYS + "a pod of PriorityClass offline-a with the class annotation godel.bytedance.com/can-be-preempted=true"
        ' and spec.schedulerName "x" in some-namespace, made by anybody',
        policy(f"{{victims: {OFF}}}", victims="schedulerNames: [volcano, default-scheduler]"),
    ),
    "a regular expression for victims": (
        "victims.pairs[0] of PreemptionPolicy m lets nobody evict anybody: a pod of PriorityClass online-a in some-",
        policy('{victims: {priorityClasses: ["offline-.*"]}}'),
    ),
    "one pair of two lets nobody evict": (
        "victims.pairs[1] of PreemptionPolicy m lets nobody evict anybody: ",
        policy(f"{{victims: {OFF}}}", f"{{preemptors: {{priorityClasses: [urgent]}}, victims: {OFF}}}"),
    ),
    "every scheduler is no preemptor": (
        "m lets nobody evict anybody: ",
        policy(preemptors=f'{ON}, schedulerNames: ["*"]'),
    ),
    "a regular expression for preemptors": (
        "m manages no pod; name priorityClasses or twins",
        policy(preemptors='priorityClasses: ["online-.*"]'),
    ),
    "no class": ("m manages no pod; name priorityClasses or twins", policy(preemptors="resize: true")),
}
SURPRISING = {
    **{name: (f"{JOINS}{who}, made by anybody, evicts a", text) for name, (who, text) in JOINING.items()},
    **{name: (NOBODY, text) for name, text in IN_VAIN.items()},
    **{name: (f"{part} of PreemptionPolicy m makes no difference: ", text) for name, (part, text) in NEEDLESS.items()},
    **OTHERS,
}


@pytest.mark.parametrize("name", SURPRISING)
def test_what_would_surprise_is_shown(name):
    """The finding has pods that anybody can make, and what becomes of them."""
    expected, text = SURPRISING[name]
    found = told(text)
    assert any(message.startswith(expected) for message in found), "\n".join(found)


UNSURPRISING = {
    "nothing but classes": policy(),
    "victims by class": policy(f"{{victims: {OFF}}}"),
    "victims by class and the namespace's label": policy(
        '{victims: {priorityClasses: [offline, "offline-*"], namespaceSelector: {matchLabels: {workload: offline}}}}'
    ),
    "both by class": policy(f"{{preemptors: {{priorityClasses: [online-a]}}, victims: {OFF}}}"),
    "preemptors of all classes that are managed": policy(f"{{preemptors: {{{ON}}}, victims: {OFF}}}"),
    "preemptors by namespace": policy(f'{{preemptors: {{namespaces: ["team-*"]}}, victims: {OFF}}}'),
    "preemptors by the namespace's label": policy(
        f"{{preemptors: {namespaces('matchLabels: {urgent: allowed}')}, victims: {OFF}}}"
    ),
    "victims of all namespaces but some": policy(f"{{victims: {namespaces(expression('DoesNotExist', 'keep'))}}}"),
    "three classes above each other": policy(
        "{preemptors: {priorityClasses: [a]}, victims: {priorityClasses: [b, c]}}",
        "{preemptors: {priorityClasses: [b]}, victims: {priorityClasses: [c]}}",
        "{preemptors: {priorityClasses: [c]}, victims: {namespaces: [x]}}",
        preemptors="priorityClasses: [a, b, c]",
    ),
    "a signal of any value": policy(victims='signals: [{annotation: e.com/k, protects: ["*"]}]'),
    "two pairs": policy(
        f"{{preemptors: {{priorityClasses: [online-a]}}, victims: {OFF}}}",
        "{preemptors: {priorityClasses: [online-b]}, victims: {namespaces: [a]}}",
    ),
    "two pairs that overlap": policy(f"{{victims: {OFF}}}", "{victims: {namespaces: [a]}}"),
    "managed classes among each other": policy(
        "{preemptors: {priorityClasses: [online-a]}, victims: {priorityClasses: [online-b]}}"
    ),
    "a twin": policy(f"{{victims: {OFF}}}", preemptors='priorityClasses: ["online-*"], twins: {high: online-high}'),
    "a twin alone": policy("{preemptors: {priorityClasses: [high]}}", preemptors="twins: {high: high-never}"),
    "opt-out": policy(f"{{victims: {OFF}}}", victims="mode: opt-out"),
    "opt-out of any scheduler": policy(victims='mode: opt-out, schedulerNames: ["*"]'),
    "signals": policy(
        victims='signals: [{annotation: e.com/k, protects: ["true"], permits: ["false"], duration: true}]'
    ),
    "signals that permit under opt-out": policy(
        victims="mode: opt-out, signals: [{annotation: e.com/k, protects: [a], permits: [b]}]"
    ),
    "another scheduler's preemptors": policy(preemptors=f"{ON}, schedulerNames: [gang-scheduler]"),
}


@pytest.mark.parametrize("name", UNSURPRISING)
def test_what_is_meant_is_let_be(name):
    """No finding about policies that do what they seem to say."""
    assert told(UNSURPRISING[name]) == []


@table(
    "text, guard",
    ("the label of preemptors", policy(f"{{preemptors: {GOLD}}}"), '!("tier" in object.metadata.labels)'),
    (
        "the label that keeps",
        policy(f"{{victims: {{labels: {{{expression('DoesNotExist')}}}}}}}"),
        '!("keep" in object.metadata.labels)',
    ),
    (
        "the scheduler",
        policy(victims="mode: opt-out, schedulerNames: [default-scheduler]"),
        'object.spec.schedulerName == "default-scheduler"',
    ),
)
def test_a_rule_that_another_one_makes_safe(text, guard):
    """The set is asked as a whole: nobody chooses what a rule refuses to everybody."""
    assert told(text)
    assert told(text, priority(validate(guard))) == []


def test_annotations_by_which_pods_stay():
    """Under opt-out a notice says that the author of a pod may annotate it, unless a rule refuses the annotation."""
    opt_out = policy(victims="mode: opt-out")
    (notice,) = told(opt_out, severity=Severity.NOTICE)
    assert notice.startswith(
        STAYS
        + "a pod of PriorityClass some-class with the annotation godel.bytedance.com/can-be-preempted=false in some-"
    )
    assert told(policy(), severity=Severity.NOTICE) == []
    refuse = priority(validate('!("godel.bytedance.com/can-be-preempted" in object.metadata.annotations)'))
    (longer,) = told(opt_out, refuse, severity=Severity.NOTICE)
    assert "the annotation godel.bytedance.com/protection-duration-from-preemption=" in longer
    bounded = opt_out + "  protection: {maximum: 1h}\n"
    assert told(bounded, refuse, severity=Severity.NOTICE) == []
