"""What a refusal of the policies' ConfigMap says, beside what was applied: what was wrong, and what would be right."""

import ast
import inspect
import re
from typing import Any

import pytest

from tests.admission.builders import ask, make_context, make_review, message_of, response
from webhook.admission import configmaps
from webhook.admission.configmaps import ALLOW_REMOVAL, POLICIES
from webhook.policy import removals
from webhook.policy.evaluation.engine import Engine
from webhook.policy.files import consistency, first_use, loading, sources, yamltree
from webhook.policy.files.first_use import Uses
from webhook.policy.files.loading import load_texts

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
SHARED = ", ".join(f"{{name: r{n}, priorityClasses: {{deny: *d}}}}" for n in range(199))
"""More is read of the aliases than stands in the file."""
REMOVED = f"Put it back, or, if that is meant, annotate the ConfigMap giveway-policies with {ALLOW_REMOVAL}: "
EXTENDED = f"Put it back, or, if that is meant, add to {ALLOW_REMOVAL} of the ConfigMap giveway-policies: "
BROKEN = "rule builtin/policies: the policies have errors:\n"
GIVEN_UP = "rule builtin/policy-removal: these policies give up what is in force: "

REMOVALS: dict[str, tuple[Files, dict[str, Any], str]] = {
    "a policy": (
        KEEP,
        {},
        f'p: the PriorityPolicy with its 2 rules is gone. {REMOVED}"p"',
    ),
    "a file that is not UTF-8 any more": (
        KEEP,
        {"binaryData": {"README": "AA=="}},
        f'p: the PriorityPolicy with its 2 rules is gone. {REMOVED}"p"',
    ),
    "two rules": (
        KEEP | {"teams.yaml": policy("{name: c, priorityClasses: {}}")},
        {},
        f'p/a: the rule is gone; p/b: the rule is gone. {REMOVED}"p/a p/b"',
    ),
    "a rule beside another one that may go": (
        KEEP | {"teams.yaml": policy("{name: c, priorityClasses: {}}")},
        {"allowed": "p/b"},
        f'p/a: the rule is gone. {EXTENDED}"p/a"',
    ),
    "a rule that refuses less": (
        KEEP | {"teams.yaml": policy(f"{DENY}, {OTHER[:-1]}, enforcement: warn}}")},
        {},
        f'p/b: enforcement enforce becomes warn. {REMOVED}"p/b"',
    ),
    "a rule of another kind": (
        KEEP | {"teams.yaml": policy(f"{DENY}, {{name: b, defaultPriorityClass: y}}")},
        {},
        f'p/b: it is a rule of another kind now. {REMOVED}"p/b"',
    ),
    "a PreemptionPolicy": (
        {"teams.yaml": IN_FORCE["teams.yaml"]},
        {},
        f'm: the PreemptionPolicy is gone: nothing preempts for pods of its classes. {REMOVED}"m"',
    ),
    "everything": (
        {},
        {},
        (
            "p: the PriorityPolicy with its 2 rules is gone; m: the PreemptionPolicy is gone: nothing preempts for pods"
            " of its classes. Put it back, or, if that is meant, leave at least one policy, because a set without any "
            f'is not taken into use, and annotate the ConfigMap giveway-policies with {ALLOW_REMOVAL}: "p m"'
        ),
    ),
}
MANY = "; ".join(f"p/r{n}: the rule is gone" for n in range(5))


def applied(files: Files, more: dict[str, Any], in_force: Files, uses: Uses = ()) -> dict[str, Any]:
    """The answer to whoever applies these files."""
    context = make_context()
    context.engine, context.uses = Engine(load_texts(sorted(in_force.items())).policies), uses
    annotations = {ALLOW_REMOVAL: more["allowed"]} if "allowed" in more else {}
    meta = {"name": POLICIES, "namespace": "giveway-system", "annotations": annotations}
    obj = {"kind": "ConfigMap", "metadata": meta, "data": files, **more}
    return response(ask(context, "validate", make_review(obj)))


def judged(files: Files, more: dict[str, Any], in_force: Files, uses: Uses = ()) -> str:
    """The refusal, without the excerpts."""
    text = message_of(applied(files, more, in_force, uses))
    return "\n".join(line for line in text.splitlines() if not re.match(r" *\d* \| ", line))


@pytest.mark.parametrize(("files", "more", "text"), REMOVALS.values(), ids=REMOVALS)
def test_what_is_given_up(files, more, text):
    """Each says what of the set in force is lacking, and what lets this very change through."""
    assert judged(files, more, IN_FORCE) == GIVEN_UP + text


@pytest.mark.parametrize("case", [name for name, (files, _, _) in REMOVALS.items() if files])
def test_what_lets_a_removal_through(case):
    """Whoever does what the refusal says is not refused again."""
    files, more, text = REMOVALS[case]
    value = text.rpartition(": ")[2].strip('"')
    allowed = f"{more['allowed']} {value}" if "allowed" in more else value
    assert applied(files, {**more, "allowed": allowed}, IN_FORCE)["allowed"]


def test_five_of_many_are_shown():
    """A long list ends in its number, and what is to be annotated is whole."""
    rules = ", ".join(f"{{name: r{n}, priorityClasses: {{}}}}" for n in range(7))
    text = judged(KEEP | {"teams.yaml": policy(DENY)}, {}, KEEP | {"teams.yaml": policy(rules)})
    ids = " ".join(f"p/r{n}" for n in range(7))
    assert text == f'{GIVEN_UP}{MANY}; and 2 more. {REMOVED}"{ids}"'


LOOPS = "object.l.all(a, object.l.all(b, object.l.all(c, true)))"
DEAR = ", ".join(f"{{name: r{n}, validate: {{message: m, expression: '{LOOPS}'}}}}" for n in range(29))
"""Expressions of which each may be, and all together cost too much."""
MISTAKES: dict[str, tuple[Files, str]] = {
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
    "an end too early": ({"a.yaml": "a: ["}, ":1:5: error: YAML: a value is missing before the end of the file"),
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


@pytest.mark.parametrize(("files", "text"), MISTAKES.values(), ids=MISTAKES)
def test_what_is_wrong_in_the_files(files, text):
    """Each has its place, and says what would be right there."""
    shown = text.format(api="giveway.dev/v1alpha1", there="giveway-policies/a.yaml")
    assert judged(files, {}, {}) == f"{BROKEN}giveway-policies/{max(files)}{shown}"


LATE = "is not read: the files before it took more than 8 s; make them smaller or fewer"
"""Nothing that is judged takes so long in a test: tests/policy/files/test_files.py has it."""
BINARY = "this is binaryData, in which a file is that is not UTF-8; save the file as UTF-8"


def test_a_file_that_kubectl_takes_for_binary():
    """Its policies are not given up; the file is broken."""
    binary = {"binaryData": {"teams.yaml": "AA==", "picture.png": "AA=="}}
    assert judged(KEEP, binary, IN_FORCE) == f"{BROKEN}giveway-policies/teams.yaml: error: {BINARY}"


def test_five_of_many_mistakes_are_shown():
    """The author sees by the number how many are left."""
    lines = judged({f"{n}.yaml": "- a" for n in range(7)}, {}, {}).splitlines()
    assert (len(lines), lines[-1]) == (7, "and 2 more")


RAISING = {
    "while it is read": (loading, "_document", "1:1: error: this policy cannot be read: OverflowError: odd"),
    "in its first use": (first_use, "rights_of", "5:11: error: this cannot be used: OverflowError: odd"),
}


@pytest.mark.parametrize(("module", "name", "text"), RAISING.values(), ids=RAISING)
def test_what_raises(module, name, text, monkeypatch):
    """A value that nobody foresaw has its place, too."""

    def fail(*_: Any) -> None:
        raise OverflowError("odd")

    monkeypatch.setattr(module, name, fail)
    said = judged({"a.yaml": policy(DENY)}, {}, {})
    assert said.startswith(f"{BROKEN}giveway-policies/a.yaml:{text}; leave it out, or give another value")


NO_REFUSALS = {"load", "_text", "__str__", "_known", "_annotations", "answered"}
"""What reads directories, and what warns."""
EMPTY = "holds no *.yaml file: only the built-in rules hold"
WARNINGS = {"the file holds no policy", EMPTY, '" and "', '" may mean the same class'}


def texts_of(module: Any) -> set[str]:
    """The parts of texts, of three words at least, in a module's functions: not in docstrings, nor of warnings."""
    found: set[str] = set()
    tree = ast.parse(inspect.getsource(module))
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        if function.name not in NO_REFUSALS:
            nodes = (node for row in function.body if not _documents(row) for node in ast.walk(row))
            found |= {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {text for text in found if len(text.split()) > 2}


def _documents(row: ast.stmt) -> bool:
    return isinstance(row, ast.Expr) and isinstance(row.value, ast.Constant)


def test_every_kind_of_refusal_is_here():
    """Each text of the modules that judge the set as a whole has a row; tests/policy/files has those of one field."""
    said = " ".join((BINARY, *(text for *_, text in (*REMOVALS.values(), *MISTAKES.values(), *RAISING.values()))))
    said += GIVEN_UP + BROKEN + MANY + LATE
    modules = (configmaps, removals, consistency, first_use, loading, sources, yamltree)
    assert {text for module in modules for text in texts_of(module) if text.strip() not in said} == WARNINGS
