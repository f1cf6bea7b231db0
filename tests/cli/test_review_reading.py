"""What `giveway review` reads: manifests as kubectl does, custom resources with a class, and what it cannot read."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest

from tests.cases import cases
from tests.cli.reviewing import CLASSES, CONTAINERS, deployment, said

BROKEN = "a: [\n"
A_CLASS = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\n"
UNREADABLE = (
    ("no object", "replicas: 3\n"),
    ("no YAML", BROKEN),
    ("a class", f"{A_CLASS}metadata: {{name: a}}\nvalue: 1.5\n"),
    ("a class without a name", f"{A_CLASS}value: 5\n"),
    ("a namespace", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a, labels: {b: yes}}\n"),
    ("an item of a list", "apiVersion: v1\nkind: List\nitems: [5]\n"),
    ("a long number", f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {{priority: {10**30}}}\n"),
    ("half a character", '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "x": "\\ud800"}\n'),
    ("half a character in a name", '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "\\ud800"}}\n'),
)


@pytest.mark.parametrize(
    ("where", "text"),
    cases(
        *(
            (f"{name}, {where}", where, text)
            for where, rows in (("file", UNREADABLE), ("directory", UNREADABLE[1:]), ("objects", UNREADABLE[:-3]))
            for name, text in rows
        )
    ),
)
def test_a_document_that_cannot_be_read_hides_no_verdict(review, tmp_path, text, where):
    """What comes before and after it is judged; the exit code is 2 all the same."""
    file, known = tmp_path / "manifests" / "web.yaml", tmp_path / "known.yaml"
    file.parent.mkdir()
    before, after = deployment("urgent"), deployment("urgent", "team-b")
    known.write_text(f"{CLASSES}---\n{text}---\n{CLASSES}")
    file.write_text(f"{before}---\n{after}" if where == "objects" else f"{before}---\n{text}---\n{after}")
    more = ["--objects", known] if where == "objects" else []
    result = review(*more, file.parent if where == "directory" else file, objects=where != "objects")
    assert result.exit_code == 2
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert {f"refused Deployment team-{letter}/web by teams/allowed" for letter in "ab"} <= set(lines)
    assert "2 judged, 2 refused, 1 could not be judged" in lines
    assert not [line for line in lines if "`apiVersion` is missing" in line]


def test_what_cannot_be_read_is_shown_with_its_place(review, tmp_path):
    """By file, line and column, for programs and for CI systems, too."""
    file = tmp_path / "web.yaml"
    file.write_text(f"{deployment('standard')}---\n{BROKEN}")
    result = review("--format", "json", "--junit", tmp_path / "out.xml", file)
    [broken] = [row for row in json.loads(result.stdout)["judged"] if row["problem"]]
    assert (broken["file"], broken["kind"], broken["line"]) == (str(file), "", 6)
    assert broken["problem"].startswith(f"{file}:7:1: ")
    suite = ET.parse(tmp_path / "out.xml").getroot().find("testsuite")
    assert (suite.get("tests"), suite.get("errors")) == ("2", "1")


def test_a_key_that_stands_twice_is_a_warning(review):
    """The last one holds, as for kubectl."""
    result = review(stdin=deployment("urgent").replace("spec:", "spec: {}\nspec:", 1))
    assert result.exit_code == 1
    assert "Warning: standard input:5:1: `spec` stands twice in one mapping; the last one holds" in result.stdout


@pytest.mark.parametrize(
    ("value", "rules"),
    [*((value, ["refused bands/top"]) for value in ("1e+03", "1500.0", "02734")), ("01500", [])],
)
def test_a_value_is_the_number_that_kubectl_reads(review, value, rules):
    """Helm writes large numbers with an exponent, and a zero in front makes an octal number."""
    manifest = f"apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {{name: a}}\nvalue: {value}\n"
    assert said(review("--format", "json", "--as", "alice", stdin=manifest)) == {"PriorityClass /a": rules}


def demand(tmp_path, expression):
    """A policy more, by which an expression has to hold."""
    rule = f'{{name: labelled, validate: {{expression: "{expression}"}}}}'
    head = "apiVersion: giveway.dev/v1alpha1\nkind: PriorityPolicy\nmetadata: {name: l}\n"
    (tmp_path / "policies" / "labels.yaml").write_text(f"{head}spec: {{rules: [{rule}]}}\n")


def test_null_is_absent(review, tmp_path):
    """As for the API server, and an empty text as a label's value; templates of charts leave such fields."""
    demand(tmp_path, "object.metadata.labels.c == ''")
    manifest = deployment("standard").replace("{labels: {a: b}}", "{labels: {a: b, c: }, annotations: , name: ~}")
    assert said(review("--format", "json", stdin=manifest)) == {"Deployment team-a/web": ["warned trial/standard"]}


def custom(spec: str, kind: str = "Rollout", namespace: str = "team-a") -> str:
    return f"apiVersion: example.com/v1\nkind: {kind}\nmetadata: {{name: a, namespace: {namespace}}}\nspec: {spec}\n"


ALLOWED, LABELLED = "refused teams/allowed", "refused bands/labelled"
TEMPLATE = f"metadata: {{labels: {{a: b}}}}, spec: {{priorityClassName: urgent, {CONTAINERS}}}"


@pytest.mark.parametrize(
    ("spec", "expected"),
    cases(
        ("a class", "{priorityClassName: urgent}", {ALLOWED, LABELLED}),
        ("beside containers", "{priorityClassName: urgent, containers: []}", {ALLOWED, LABELLED}),
        ("a class by another name", "{server: {podPriorityClassName: urgent}}", {ALLOWED, LABELLED}),
        ("by part", "{priorityClassNames: {mon: standard, osd: urgent}}", {ALLOWED, LABELLED}),
        ("a pod template", f"{{template: {{{TEMPLATE}}}}}", {ALLOWED, LABELLED}),
        ("a template further down", f"{{sets: [{{jobs: [{{template: {{{TEMPLATE}}}}}]}}]}}", {ALLOWED, LABELLED}),
        ("a class that nobody has", "{priorityClassName: gone}", {ALLOWED, "refused builtin/class-exists"}),
    ),
)
def test_a_custom_resource_with_a_class_is_judged_by_its_pods(review, spec, expected):
    """Its operator makes them, so nobody is told when it is applied."""
    result = review("--format", "json", stdin=custom(spec))
    assert (set(said(result)["Rollout team-a/a"]), result.exit_code) == (expected, 1)
    message = json.loads(result.stdout)["judged"][0]["said"][0]["message"]
    assert message.startswith("its pods, when they are made: ")


@pytest.mark.parametrize(
    ("manifest", "words"),
    cases(
        ("allowed", custom("{priorityClassName: standard}", namespace="east"), "Rollout: its pods are judged when"),
        ("no class", custom("{replicas: 2}"), "Rollout: no rule is about it"),
        ("an empty one", custom("{priorityClassName: ''}"), "Rollout: no rule is about it"),
        ("a schema", custom("{properties: {priorityClassName: {type: string}}}"), "Rollout: no rule is about it"),
        (
            "a namespace that is left out",
            custom("{priorityClassName: urgent}", namespace="kube-system"),
            "in namespace kube-system, about which",
        ),
    ),
)
def test_other_custom_resources_are_passed_over(review, manifest, words):
    """With a word about pods that they make."""
    result = review(stdin=manifest)
    assert (result.exit_code, f"1 not judged, {words}" in result.stdout) == (0, True)


def test_a_deployment_of_another_group_is_a_custom_resource(review):
    """It goes by group and kind."""
    result = review(stdin=custom("{priorityClassName: urgent}", "Deployment", "east2"))
    assert "refused  Deployment east2/a by bands/labelled" in result.stdout


def test_a_rule_about_what_a_custom_resource_does_not_tell_says_nothing(review, tmp_path):
    """Of its pods the class is known and nothing else."""
    demand(tmp_path, "'owner' in object.metadata.labels")
    assert review(stdin=custom("{priorityClassName: standard}", namespace="east")).exit_code == 0
    assert review(stdin=custom(f"{{template: {{{TEMPLATE}}}}}", namespace="east")).exit_code == 1
