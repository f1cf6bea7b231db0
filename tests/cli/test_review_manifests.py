"""`giveway review` of manifests: what the policies would say of each, before anybody applies it."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from tests.cases import cases
from tests.cli.reviewing import CONTAINERS, POLICY, deployment, said
from webhook.cli.review import command

BARE = f"apiVersion: v1\nkind: Pod\nmetadata: {{generateName: a-, namespace: team-a}}\nspec: {{{CONTAINERS}}}"
NOWHERE = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {{{CONTAINERS}, priorityClassName: urgent}}"
EAST = "apiVersion: v1\nkind: Namespace\nmetadata: {name: east, labels: {urgent: allowed}}\n---\n"
OWN = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: own}\nvalue: 3\n---\n"
WEB, EAST_WEB = "Deployment team-a/web", "Deployment east/web"


@pytest.mark.parametrize(
    ("manifest", "expected"),
    cases(
        ("a warning refuses nothing", deployment("standard"), {WEB: ["warned trial/standard"]}),
        ("all that refuse", deployment("urgent"), {WEB: ["refused teams/allowed", "refused bands/labelled"]}),
        ("a class that nobody has", deployment("nope", "east"), {EAST_WEB: ["refused builtin/class-exists"]}),
        ("a pod gets its default class first", BARE, {"Pod team-a/a-*": ["warned trial/standard"]}),
        ("without a namespace", NOWHERE, {"Pod default/a": ["refused bands/labelled"]}),
        ("a namespace among the manifests counts as there", EAST + deployment("urgent", "east"), {EAST_WEB: []}),
        ("so does a class", OWN + deployment("own", "east"), {"PriorityClass /own": [], EAST_WEB: []}),
        ("a namespace that giveway is not asked about", deployment("urgent", "kube-system"), {}),
    ),
)
def test_manifests_are_judged_as_the_webhook_judges_them(review, manifest, expected):
    """Templates, pods and classes go through the webhook's own functions; the exit code says if one is refused."""
    result = review("--format", "json", "-", stdin=manifest)
    assert said(result) == expected
    assert result.exit_code == any(verdict.startswith("refused") for rows in expected.values() for verdict in rows)


CLASS = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: top}\nvalue: 1500\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    cases(
        ("nobody in particular", (), "cannot be judged bands/top"),
        ("somebody", ("--as", "alice"), "refused bands/top"),
        ("who has the right", ("--as", "alice", "--as-group", "platform"), None),
    ),
)
def test_who_applies_it(review, options, expected):
    """A rule that decides by who asks needs to be told who that is."""
    result = review("--format", "json", *options, stdin=CLASS)
    assert said(result)["PriorityClass /top"] == ([expected] if expected else [])
    assert result.exit_code == (1 if expected == "refused bands/top" else 0)


def test_a_service_account_has_the_groups_that_the_api_server_gives_it(review, tmp_path):
    """Its groups need not be named."""
    text = POLICY.replace("{kind: Group, name: platform}", "{kind: Group, name: 'system:serviceaccounts:ci'}")
    (tmp_path / "policies" / "teams.yaml").write_text(text)
    assert review("--as", "system:serviceaccount:ci:deployer", stdin=CLASS).exit_code == 0
    assert review("--as", "system:serviceaccount:other:deployer", stdin=CLASS).exit_code == 1


def test_a_directory_for_people(review, tmp_path):
    """Every file below it is read; what holds no object, such as a chart's values, is passed over."""
    below = tmp_path / "manifests" / "below"
    below.mkdir(parents=True)
    (below / "values.yaml").write_text("replicas: 3\n")
    (below / "web.yaml").write_text(deployment("urgent") + "---\napiVersion: v1\nkind: Service\nmetadata: {name: s}\n")
    listed = {"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "p"}, "spec": {}}]}
    (tmp_path / "manifests" / "pods.json").write_text(json.dumps(listed))
    result = review(tmp_path / "manifests")
    assert result.exit_code == 1
    lines = [line.strip() for line in result.stdout.splitlines()]
    assert lines[0] == f"{below / 'web.yaml'}"
    assert "refused  Deployment team-a/web by teams/allowed" in lines
    assert "allowed  Pod default/p" in lines
    assert lines[-2:] == ["2 judged, 1 refused", "1 not judged, Service: no rule is about it"]
    assert any(line.startswith("Assumed: these namespaces have no labels: default, team-a.") for line in lines)
    # A class that is not among the objects is taken for absent
    absent = review(stdin=deployment("standard"), objects=False).stdout
    assert "Assumed: these PriorityClasses do not exist: standard." in absent
    assert "no PriorityClass with name standard was found" in absent


@pytest.mark.parametrize(("fail_on", "code"), [("refused", 0), ("warned", 1), ("audited", 1), ("never", 0)], ids=str)
def test_from_which_verdict_on_it_fails(review, fail_on, code):
    """As in a scan."""
    assert review("--fail-on", fail_on, stdin=deployment("standard")).exit_code == code


def test_junit(review, tmp_path):
    """CI systems get a suite for each file and a case for each object."""
    file = tmp_path / "out.xml"
    review("--junit", file, stdin=deployment("urgent") + "---\n" + deployment("standard", "team-b"))
    suite = ET.parse(file).getroot().find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    refused, warned = suite.findall("testcase")
    assert refused.get("name") == "Deployment team-a/web"
    assert refused.find("failure").get("message").startswith("refused by teams/allowed: PriorityClass")
    assert "bands/labelled" in refused.find("failure").text
    assert warned.find("system-out").text.startswith("warned by trial/standard")


@pytest.mark.parametrize(
    ("text", "words"),
    cases(
        ("no YAML", "a: [", "standard input:2:1: did not find expected node"),
        ("nothing", "", "standard input: no Kubernetes object is in it"),
        ("a comment", "---\n# a comment\n", "no Kubernetes object is in it"),
        ("an empty list", "apiVersion: v1\nkind: List\nitems: []\n", "no Kubernetes object is in it"),
        ("no version", "kind: Pod\nmetadata: {name: a}", "standard input:1: not a Kubernetes object: `apiVersion`"),
        (
            "a name that is true",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: y}",
            "metadata: Expected `str`, got `bool` - at `$.name`; texts such as `y`, `on` and `5` need quotes",
        ),
        ("a template of a chart", "{{- with .Values }}", "render a chart first"),
        ("no object", "replicas: 3", "standard input:1: not a Kubernetes object: `kind` is missing"),
        ("an AdmissionReview", '{"kind": "AdmissionReview"}', "say --phase mutate or validate"),
        (
            "fields of other types",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {priorityClassName: [5]}\n",
            "not judged  Pod default/a",
        ),
    ),
)
def test_what_cannot_be_read(review, text, words):
    """Exit code 2, and what is wrong."""
    result = review("-", stdin=text)
    assert result.exit_code == 2
    assert words in result.output


@pytest.mark.parametrize(
    ("options", "words"),
    cases(
        ("a group of nobody", ("--as-group", "g"), "--as-group is a group of the user"),
        ("explain", ("--explain",), "name its --phase"),
    ),
)
def test_calls_that_make_no_sense(review, options, words):
    """They are refused with what would be right."""
    result = review(*options, stdin="")
    assert result.exit_code == 2
    assert words in result.output


def test_shipped_examples_pass_their_own_policies():
    """The objects of the worked example are let in when the platform team applies them."""
    example = Path(__file__).parents[2] / "policies" / "examples" / "co-location"
    arguments = ["--policies", str(example), "--as", "alice", "--as-group", "platform", str(example / "cluster")]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
