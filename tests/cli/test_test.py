"""`giveway test`: the declarative tests beside the policies."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from tests.cases import cases
from webhook.cli.test import command

POLICIES = Path(__file__).parents[2] / "policies"
POLICY = """\
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {name: teams}
spec:
  match: {namespaces: ["team-*"]}
  rules:
  - {name: default, defaultPriorityClass: standard}
  - {name: allowed, priorityClasses: {allow: [standard]}}
"""
TEST = """\
apiVersion: giveway.dev/v1alpha1
kind: PolicyTest
metadata: {name: teams}
spec:
  policies: ..
  objects:
  - {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: standard}, value: 7}
  - {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: other}, value: 9}
  cases:
  - name: the case
    request:
      user: alice
      object: {apiVersion: v1, kind: Pod, metadata: {name: a, namespace: team-a}, spec: {priorityClassName: CLASS}}
    expect: EXPECT
"""
STANDARD_PATCH = (
    "[{op: add, path: /spec/priority, value: 7}, {op: add, path: /spec/preemptionPolicy, value: PreemptLowerPriority}]"
)  # fmt: skip


@pytest.fixture(autouse=True)
def in_a_pipe(monkeypatch):
    """Nobody says how wide the output is; tests that share a machine are told a width."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def write(tmp_path):
    """Write a policy and a test with this class and expectation; returns the directory."""

    def writing(name: str, expect: str, test: str = TEST) -> Path:
        (tmp_path / "teams.yaml").write_text(POLICY)
        (tmp_path / "tests").mkdir()
        (tmp_path / "tests" / "teams.yaml").write_text(test.replace("CLASS", name).replace("EXPECT", expect))
        return tmp_path

    return writing


def run(*arguments: object):
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_the_shipped_policies_pass_their_tests():
    """What is shipped is tested, the worked examples included."""
    result = run(POLICIES)
    assert result.exit_code == 0, result.output
    assert ", 0 failed" in result.output


@pytest.mark.parametrize(
    ("name", "expect"),
    cases(
        ("refused", "other", "{verdict: deny, rule: teams/allowed, message: may not be used}"),
        ("allowed", "standard", "{verdict: allow, warnings: []}"),
        ("patch", "standard", f"{{verdict: allow, patch: {STANDARD_PATCH}}}"),
        ("the rule that filled something in", '""', "{verdict: allow, rule: teams/default}"),
    ),
)
def test_a_case_that_holds_passes(write, name, expect):
    """Verdict, rule, message, patch and warnings as expected: exit code 0."""
    result = run(write(name, expect))
    assert result.exit_code == 0, result.output
    assert "1 passed, 0 failed" in result.output


def test_a_patch_is_compared_without_records(write):
    """What the webhook records of new pods is no part of what the author of a test expects."""
    directory = write("standard", f"{{verdict: allow, patch: {STANDARD_PATCH}}}")
    groups = "{preemptors: {priorityClasses: [other]}, groups: {disruption: Never}}"
    head = "apiVersion: giveway.dev/v1alpha1\nkind: PreemptionPolicy\nmetadata: {name: groups}\n"
    (directory / "groups.yaml").write_text(f"{head}spec: {groups}\n")
    result = run(directory)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("name", "expect", "words"),
    cases(
        ("verdict", "other", "{verdict: allow}", "verdict: expected allow, got deny: PriorityClass"),
        ("rule", "other", "{verdict: deny, rule: teams/x}", "rule: expected teams/x, got teams/allowed"),
        ("message", "other", "{verdict: deny, message: hello}", "message: expected 'hello' in"),
        ("patch", "standard", "{verdict: allow, patch: []}", "patch: expected [], got [{"),
        ("warnings", "standard", "{verdict: allow, warnings: [x]}", "warnings: expected 'x' in none"),
    ),
)
def test_a_case_that_does_not_hold_fails(write, name, expect, words):
    """What was expected and what came instead is told, and the exit code is 1."""
    result = run(write(name, expect))
    assert result.exit_code == 1
    assert words in result.output
    assert "0 passed, 1 failed" in result.output


@pytest.mark.parametrize(
    ("change", "words"),
    cases(
        ("unknown field", ("expect:", "expects:"), "unknown field `expects`"),
        ("unknown verdict", ("verdict: allow", "verdict: maybe"), "Invalid enum value 'maybe'"),
        ("no policies", ("policies: ..", "policies: nowhere"), "nowhere"),
        ("bad object", ("value: 7", "value: x"), "spec.objects[0]: PriorityClass: Expected `int`"),
        ("no test at all", ("kind: PolicyTest", "kind: Other"), "no PolicyTest in"),
    ),
)
def test_a_test_that_cannot_be_run_is_an_error(write, change, words):
    """A mistake in a test file is no failed test: exit code 2, and where it is."""
    result = run(write("standard", "{verdict: allow}", TEST.replace("EXPECT", "{verdict: allow}").replace(*change)))
    assert result.exit_code == 2
    assert words in result.output


def test_results_are_written_as_junit_xml(write, tmp_path):
    """CI systems read suites, cases and failures."""
    report = tmp_path / "report.xml"
    assert run(write("other", "{verdict: allow}"), "--junit", report).exit_code == 1
    suite = ET.parse(report).getroot()[0]
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("teams", "1", "1")
    assert suite[0].get("name") == "the case"
    assert "expected allow, got deny" in suite[0][0].text


def test_in_a_pipe_each_case_is_on_one_line(write):
    """However long names are: a program finds name, verdict and result of a case on one line."""
    name = "a case with a long name " * 10 + "end"
    result = run(write("standard", "{verdict: allow}", TEST.replace("name: the case", f"name: {name}")))
    assert [line.split()[-2:] for line in result.output.splitlines() if name in line] == [["allow", "ok"]]


def test_a_case_may_ask_one_webhook_alone(write):
    """`phase: validate` judges the object as it is written, without mutation."""
    case = TEST.replace("  - name: the case\n", "  - name: the case\n    phase: validate\n")
    result = run(write("standard", "{verdict: deny, rule: builtin/priority-resolved}", case))
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("now", "verdict"), [("2026-11-30T23:59:59Z", "allow"), ("2026-12-01T00:00:00Z", "deny")], ids=["before", "after"]
)
def test_a_test_says_when_it_happens(write, now, verdict):
    """`now` is the time of its cases, by which exceptions end."""
    directory = write("other", f"{{verdict: {verdict}}}", TEST.replace("  objects:", f'  now: "{now}"\n  objects:'))
    exception = (
        "  exceptions: [{match: {namespaces: [team-a]}, rules: [allowed], reason: r, owner: o, until: 2026-11-30}]\n"
    )
    (directory / "teams.yaml").write_text(POLICY + exception)
    assert run(directory).exit_code == 0


def test_a_time_that_is_none_is_named(write):
    """The file cannot be run."""
    directory = write("standard", "{verdict: allow}", TEST.replace("  objects:", "  now: soon\n  objects:"))
    result = run(directory)
    assert (result.exit_code, "spec.now: 'soon' is not an RFC 3339 instant" in result.output) == (2, True)


def test_a_pod_group_is_judged_like_its_pods(write):
    """Each kind that the webhook judges can stand in a test."""
    pod = "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: team-a}"
    group = "{apiVersion: scheduling.k8s.io/v1, kind: PodGroup, metadata: {name: a, namespace: team-a}"
    assert pod in TEST
    path = write("other", "{verdict: deny, rule: teams/allowed}", TEST.replace(pod, group))
    result = CliRunner().invoke(command, [str(path)])
    assert result.exit_code == 0, result.output
