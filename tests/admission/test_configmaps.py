"""The ConfigMaps of giveway's own namespace: what a refusal of the policies says, and that the probe is answered.

What is wrong with one field of a policy is in tests/policy/files.
"""

import re
from typing import Any

import pytest

from tests.admission.builders import UID, ask, make_context, make_review, message_of, response
from tests.policy.builders import table
from tests.processor_time import within
from webhook.admission.configmaps import ALLOW_REMOVAL, POLICIES, PROBE, answers
from webhook.admission.context import Context
from webhook.policy.cel.program import AllowanceError
from webhook.policy.evaluation.engine import Engine
from webhook.policy.files import loading
from webhook.policy.files.loading import Uses, load_texts

Files = dict[str, str]
KINDS = {"PriorityPolicy": "rules: [{}]", "PreemptionPolicy": "preemptors: {{priorityClasses: [{}]}}"}


def policy(what: str, name: str = "p", kind: str = "PriorityPolicy", more: str = "") -> str:
    spec = KINDS[kind].format(what)
    return f"apiVersion: giveway.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n  {spec}\n{more}"


def both(first: str, second: str) -> Files:
    """Two files, of which the second one is wrong beside the first."""
    return {"a.yaml": first, "b.yaml": second}


DENY, OTHER = "{name: a, priorityClasses: {deny: [x]}}", "{name: b, priorityClasses: {deny: [y]}}"
RESERVE = "{{name: {}, reserve: {{from: {}, to: 9}}}}"
MANAGING = policy("batch", "m", "PreemptionPolicy")
IN_FORCE = {"teams.yaml": policy(f"{DENY}, {OTHER}"), "m.yaml": MANAGING}
KEEP = {"m.yaml": MANAGING}
SOFTER = KEEP | {"teams.yaml": policy(f"{DENY}, {OTHER[:-1]}, enforcement: warn}}")}
OTHER_RULES = KEEP | {"teams.yaml": policy("{name: c, priorityClasses: {}}")}
SHARED = ", ".join(f"{{name: r{n}, priorityClasses: {{deny: *d}}}}" for n in range(199))
"""More is read of the aliases than stands in the file."""
ANNOTATE = f"annotate the ConfigMap giveway-policies with {ALLOW_REMOVAL}"
ADD = f"add to {ALLOW_REMOVAL} of the ConfigMap giveway-policies"
BROKEN = "rule builtin/policies: the policies have errors:\n"
GIVEN_UP = "rule builtin/policy-removal: these policies give up what is in force: "

REMOVALS: dict[str, tuple[Files, dict[str, Any], str, str]] = {
    "a policy": (KEEP, {}, "p: the PriorityPolicy with its 2 rules is gone", "p"),
    "a file that is not UTF-8 any more": (
        KEEP,
        {"binaryData": {"README": "AA=="}},
        "p: the PriorityPolicy with its 2 rules is gone",
        "p",
    ),
    "two rules": (OTHER_RULES, {}, "p/a: the rule is gone; p/b: the rule is gone", "p/a p/b"),
    "a rule beside another one that may go": (OTHER_RULES, {"allowed": "p/b"}, "p/a: the rule is gone", "p/a"),
    "a rule that refuses less": (SOFTER, {}, "p/b: enforcement enforce becomes warn", "p/b"),
    "a rule of another kind": (
        KEEP | {"teams.yaml": policy(f"{DENY}, {{name: b, defaultPriorityClass: y}}")},
        {},
        "p/b: it is a rule of another kind now",
        "p/b",
    ),
    "a PreemptionPolicy": (
        {"teams.yaml": IN_FORCE["teams.yaml"]},
        {},
        "m: the PreemptionPolicy is gone: nothing preempts for pods of its classes",
        "m",
    ),
    "everything": (
        {},
        {},
        (
            "p: the PriorityPolicy with its 2 rules is gone; m: the PreemptionPolicy is gone: nothing preempts for pods"
            " of its classes"
        ),
        "p m",
    ),
}
"""What is applied, what else the ConfigMap says, what is told, and what has to be allowed."""
MANY = "; ".join(f"p/r{n}: the rule is gone" for n in range(5))


def config_map(data: Any, name: str = POLICIES, namespace: str = "giveway-system", **more: Any) -> dict[str, Any]:
    """The ConfigMap with this data, and what it says may be given up."""
    annotations = {ALLOW_REMOVAL: more["allowed"]} if "allowed" in more else {}
    meta = {"name": name, "namespace": namespace, "annotations": annotations}
    return {"kind": "ConfigMap", "metadata": meta, "data": data, **more}


def context_of(in_force: Files, uses: Uses = ()) -> Context:
    """Where these files are in force."""
    context = make_context()
    context.engine, context.uses = Engine(load_texts(sorted(in_force.items())).policies), uses
    return context


def applied(data: Any, in_force: Files, uses: Uses = (), **more: Any) -> dict[str, Any]:
    """The answer to whoever applies this data."""
    return response(ask(context_of(in_force, uses), "validate", make_review(config_map(data, **more))))


def refused(data: Any, in_force: Files, uses: Uses = (), **more: Any) -> str:
    """The refusal, without the excerpts."""
    text = message_of(applied(data, in_force, uses, **more))
    return "\n".join(line for line in text.splitlines() if not re.match(r" *\d* \| ", line))


@table("files, more, text, ids", REMOVALS)
def test_what_is_given_up(files, more, text, ids):
    """Each says what of the set in force is lacking, and what lets this very change through: then it is not refused."""
    some = "" if files else "leave at least one policy, because a set without any is not taken into use, and "
    say = ADD if "allowed" in more else ANNOTATE
    told = f'{GIVEN_UP}{text}. Put it back, or, if that is meant, {some}{say}: "{ids}"'
    assert refused(files, IN_FORCE, **more) == told
    assert applied(files, IN_FORCE, **{**more, "allowed": f"{more.get('allowed', '')} {ids}"})["allowed"]


def test_five_of_many_are_shown():
    """A long list ends in its number, and what is to be annotated is whole."""
    rules = ", ".join(f"{{name: r{n}, priorityClasses: {{}}}}" for n in range(7))
    text = refused(KEEP | {"teams.yaml": policy(DENY)}, KEEP | {"teams.yaml": policy(rules)})
    ids = " ".join(f"p/r{n}" for n in range(7))
    assert text == f'{GIVEN_UP}{MANY}; and 2 more. Put it back, or, if that is meant, {ANNOTATE}: "{ids}"'


LOOPS = "object.l.all(a, object.l.all(b, object.l.all(c, true)))"
DEAR = ", ".join(f"{{name: r{n}, validate: {{message: m, expression: '{LOOPS}'}}}}" for n in range(29))
"""Expressions of which each may be, and all together cost too much."""
WITHOUT_VALUES = "{namespaceSelector: {matchExpressions: [{key: a, operator: In}]}}"
EXCEPTED = (
    "exceptions: [{match: {namespaces: [a]}, rules: [a], reason: r, owner: o, until: '9999-12-31T23:59:59-14:00'}]"
)
MISTAKES: dict[str, tuple[Files, str]] = {
    "a selector without values": (
        {"a.yaml": policy(f"{{name: r, reserve: {{from: 1, to: 9, use: [{WITHOUT_VALUES}]}}}}")},
        (
            ":5:112: error: operator In of key 'a' needs at least one value"
            " (spec.rules[0].reserve.use[0].namespaceSelector.matchExpressions[0].operator)"
        ),
    ),
    "an end that nobody can write down": (
        {"a.yaml": policy(DENY, more=f"  {EXCEPTED}\n")},
        (
            ":6:83: error: expected a date such as 2026-12-31, or an instant such as 2026-12-31T18:00:00Z:"
            " '9999-12-31T23:59:59-14:00' lies outside the years 0001 to 9999 in UTC (spec.exceptions[0].until)"
        ),
    ),
    "no kind": (
        {"a.yaml": "a: b"},
        ':1:1: error: a policy needs "kind": PriorityPolicy or PreemptionPolicy (apiVersion: {api})',
    ),
    "a list": (
        {"a.yaml": "- a"},
        ":1:1: error: expected a policy (a mapping with apiVersion, kind, metadata, spec), found a list",
    ),
    "a test": (
        {"a.yaml": "kind: PolicyTest"},
        ":1:7: error: PolicyTest documents lie in a sub-folder such as tests/, not beside the policies (kind)",
    ),
    "another kind": (
        {"a.yaml": "kind: PriorityPolcy"},
        ':1:7: error: "PriorityPolcy" is no kind of policy; did you mean "PriorityPolicy"? (kind)',
    ),
    "a tag": ({"a.yaml": "a: !!x y"}, ":1:4: error: YAML: tags such as tag:yaml.org,2002:x are not read; leave it out"),
    "a directive": (
        {"a.yaml": "%YAML 1.1\n---\na: b"},
        ":1:1: error: YAML: directives are not read, policy files are YAML 1.2; leave this line out",
    ),
    "a control character": (
        {"a.yaml": "a: \x00"},
        ":1:4: error: YAML: control character #x0000 in the text; take it out",
    ),
    "no anchor": (
        {"a.yaml": "a: *b"},
        ":1:4: error: YAML: alias *b refers to no anchor &b above it; write the value out",
    ),
    "depth": ({"a.yaml": "[" * 40}, ":1:33: error: YAML: nested more than 32 levels deep; no policy needs that"),
    "values": (
        {"a.yaml": "a: [" + "1," * 10_000 + "1]"},
        ":1:19999: error: YAML: more than 10000 values in one file; split it",
    ),
    "documents": ({"a.yaml": "---\n" * 1001}, ":1001:1: error: YAML: more than 1000 documents; split the file"),
    "what aliases make": (
        {
            "a.yaml": policy(
                f"{{name: a, priorityClasses: {{deny: &d [{', '.join(map('x{}'.format, range(400)))}]}}}}, {SHARED}"
            )
        },
        ":5:8547: error: YAML: the aliases of this file make too much of it; write the values out",
    ),
    "a large file": (
        {"a.yaml": "#" * 140_000},
        ": error: has 140000 bytes; a policy file has at most 131072: split it",
    ),
    "a large set": (
        {f"{n}.yaml": "#" * 131_040 for n in range(8)} | {"a.yaml": "#" * 100},
        (
            ": error: with this file the policies have 1048627 bytes; a set has at most 1048576, because it is kept "
            "in a ConfigMap: shorten comments, or take policies out"
        ),
    ),
    "many files": (
        {f"{n:04}.yaml": "" for n in range(1000)} | {"a.yaml": ""},
        ": error: a set has at most 1000 policy files: join some",
    ),
    "a name twice": (
        both(policy(DENY), policy(OTHER)),
        ':1:1: error: two policies are named "p"; give one of them another name\n{there}:1:1: note: the first one',
    ),
    "the name of built-in rules": (
        {"a.yaml": policy(DENY, "builtin")},
        ':1:1: error: "builtin" is the name of the built-in rules; choose another',
    ),
    "ranges": (
        both(policy(RESERVE.format("a", 1)), policy(RESERVE.format("b", 5), "q")),
        (
            ":5:11: error: the range of q/b overlaps that of p/a in 5 to 9; a value can be reserved once, so end one "
            "of them before the other begins (spec.rules[0])\n{there}:5:11: note: p/a reserves 1 to 9 (spec.rules[0])"
        ),
    ),
    "a default that is refused": (
        {"a.yaml": policy("{name: d, defaultPriorityClass: x}, " + DENY)},
        (
            ':5:11: error: the default "x" is refused by p/a: pods that name no class are denied; allow it there, or '
            "choose another default (spec.rules[0])\n{there}:5:47: note: the rule that refuses it (spec.rules[1])"
        ),
    ),
    "expressions that cost too much together": (
        {"a.yaml": policy(DEAR)},
        (
            ":5:3025: error: with rule p/r28 the expressions of this policy may take 104 ms on an object of 8 KiB"
            " whose lists have 32 elements; at most 100 ms are allowed: use fewer expressions with loops, or split the"
            " policy by what it matches (spec.rules[28])"
        ),
    ),
    "a class of two policies": (
        both(MANAGING, policy("batch", "n", "PreemptionPolicy")),
        (
            ':1:1: error: PreemptionPolicy n: "batch" is managed by m already; a class has one policy, so name it in '
            'one of them\n{there}:1:1: note: m manages "batch"'
        ),
    ),
}


@table("files, text", MISTAKES)
def test_what_is_wrong_in_the_files(files, text):
    """Each has its place, and says what would be right there."""
    shown = text.format(api="giveway.dev/v1alpha1", there="giveway-policies/a.yaml")
    assert refused(files, {}) == f"{BROKEN}giveway-policies/{max(files)}{shown}"


def test_a_file_that_kubectl_takes_for_binary():
    """Its policies are not given up; the file is broken."""
    binary = {"teams.yaml": "AA==", "picture.png": "AA=="}
    text = "this is binaryData, in which a file is that is not UTF-8; save the file as UTF-8"
    assert refused(KEEP, IN_FORCE, binaryData=binary) == f"{BROKEN}giveway-policies/teams.yaml: error: {text}"


def test_five_of_many_mistakes_are_shown():
    """The author sees by the number how many are left."""
    lines = refused({f"{n}.yaml": "- a" for n in range(7)}, {}).splitlines()
    assert (len(lines), lines[-1]) == (7, "and 2 more")


RAISING = {
    "while it is read": (loading, "_document", "1:1: error: this policy cannot be read: OverflowError: odd"),
    "in its first use": (loading, "rights_of", "5:11: error: this cannot be used: OverflowError: odd"),
}


@table("module, name, text", RAISING)
def test_what_raises(module, name, text, monkeypatch):
    """A value that nobody foresaw has its place, too."""

    def fail(*_: Any) -> None:
        raise OverflowError("odd")

    monkeypatch.setattr(module, name, fail)
    said = refused({"a.yaml": policy(DENY)}, {})
    assert said.startswith(f"{BROKEN}giveway-policies/a.yaml:{text}; leave it out, or give another value")


@table(
    "allowed, passes", {"the id": ("p m", True), "a glob": ("m, p*", True), "of its rules alone": ("m p/* pp", False)}
)
def test_what_may_be_given_up(allowed, passes):
    """The ConfigMap lists it by name or glob."""
    assert applied({}, IN_FORCE, allowed=allowed)["allowed"] is passes


def test_the_same_policies_pass():
    """Applying what is in force changes nothing, whatever else lies beside it."""
    assert applied(IN_FORCE | {"README.md": "no policy"}, IN_FORCE)["allowed"]


def test_warnings():
    """What lint warns of is told to the author."""
    where = "giveway-policies/teams.yaml:5:87 (spec.rules[1].priorityClasses.deny[0])"
    assert any(text.startswith(f"{where}: YAML 1.1 readers") for text in applied(IN_FORCE, IN_FORCE)["warnings"])


@pytest.mark.parametrize("data", [None, [], "text", {"a.yaml": 7}, {"a.yaml": None}])
def test_odd_data(data):
    """Data that is no map of texts holds no policies, and so gives up those in force."""
    assert "is gone" in refused(data, IN_FORCE)


@table(
    "data, allowed, words",
    {
        "all files": ({f"{n}.yaml": "# " + "x" * 130_000 for n in range(9)}, "", "a set has at most 1048576"),
        "many files": ({f"{n}.yaml": "" for n in range(100_000)}, "", "at most 1000 policy files"),
        "many names": ({f"{'x' * 200}{n}.yaml": "" for n in range(6000)}, "", "at most 1000 policy files"),
        "a list of what may go": ({}, " ".join(f"*a*b*{n}*" for n in range(500_000)), "is gone"),
    },
)
def test_a_config_map_is_bounded_as_files_are(data, allowed, words):
    """What is too much is refused before it is parsed, in a second at most."""
    with within(1):
        assert words in refused(data, IN_FORCE, allowed=allowed)


def test_takes_time():
    """Where there is no time to compile policies, it is done where there is."""
    context = context_of(IN_FORCE)
    context.allowance = 1.0
    with pytest.raises(AllowanceError):
        ask(context, "validate", make_review(config_map({})))


def test_the_own_namespace_is_what_it_is_told_to_be():
    """A server in another namespace judges the policies there, and no others."""
    context = context_of(IN_FORCE)
    context.namespace = "priorities"
    for namespace, allowed in (("priorities", False), ("giveway-system", True)):
        body = make_review(config_map({}, namespace=namespace))
        assert response(ask(context, "validate", body))["allowed"] is allowed


@pytest.mark.parametrize("phase", ["mutate", "validate"])
@table(
    "asked, answered",
    {
        "the probe": ({"name": PROBE}, True),
        "another one": ({"name": "other"}, False),
        "a probe elsewhere": ({"name": PROBE, "namespace": "team-a"}, False),
        "a probe in no namespace": ({"name": PROBE, "namespace": ""}, False),
        "policies elsewhere": ({"namespace": "team-a"}, False),
        "policies in no namespace": ({"namespace": ""}, False),
    },
)
def test_the_probe_is_answered_and_nothing_else(asked, answered, phase):
    """Each phase says that it was reached, and by which version; of other ConfigMaps nobody learns anything."""
    body = make_review(config_map({}, **asked), config_map({}, **asked))
    said = {"warnings": [answers(phase)]} if answered else {}
    assert response(ask(context_of(IN_FORCE), phase, body)) == {"uid": UID, "allowed": True, **said}
