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
  exceptions: [{match: {namespaces: [team-a]}, rules: [allowed], reason: r, owner: o, until: 2020-11-30}]
---
apiVersion: giveway.dev/v1alpha1
kind: PreemptionPolicy
metadata: {name: groups}
spec: {preemptors: {priorityClasses: [other]}, groups: {disruption: Never}}
"""
"""The exception has ended, and records are kept of new pods, which are no part of what the author of a test expects."""
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
POD_GROUP = ("v1, kind: Pod, ", "scheduling.k8s.io/v1, kind: PodGroup, ")
OTHER_IS_DENIED = "{verdict: deny, rule: teams/allowed}"


def at(now):
    return "  objects:", f'  now: "{now}"\n  objects:'


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a policy and a test with this class and expectation, in a pipe of any width; returns the directory."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def writing(name: str, expect: str, *changes: tuple[str, str]) -> Path:
        test = TEST.replace("CLASS", name).replace("EXPECT", expect)
        for before, after in changes:
            assert before in test
            test = test.replace(before, after)
        (tmp_path / "teams.yaml").write_text(POLICY)
        (tmp_path / "tests").mkdir()
        (tmp_path / "tests" / "teams.yaml").write_text(test)
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
    ("name", "expect", "changes"),
    cases(
        ("refused", "other", "{verdict: deny, rule: teams/allowed, message: may not be used}", []),
        ("allowed", "standard", "{verdict: allow, warnings: []}", []),
        ("patch", "standard", f"{{verdict: allow, patch: {STANDARD_PATCH}}}", []),
        ("the rule that filled something in", '""', "{verdict: allow, rule: teams/default}", []),
        (
            "one webhook alone, without mutation",
            "standard",
            "{verdict: deny, rule: builtin/priority-resolved}",
            [("    request:", "    phase: validate\n    request:")],
        ),
        ("before an exception ends", "other", "{verdict: allow}", [at("2020-11-30T23:59:59Z")]),
        ("when it has ended", "other", OTHER_IS_DENIED, [at("2020-12-01T00:00:00Z")]),
        ("a pod group, judged like its pods", "other", OTHER_IS_DENIED, [POD_GROUP]),
    ),
)
def test_a_case_that_holds_passes(write, name, expect, changes):
    """Verdict, rule, message, patch and warnings as expected, at the time that the test says: exit code 0."""
    result = run(write(name, expect, *changes))
    assert result.exit_code == 0, result.output
    assert "1 passed, 0 failed" in result.output


@pytest.mark.parametrize(
    ("name", "expect", "words"),
    cases(
        ("verdict", "other", "{verdict: allow}", "verdict: expected allow, got deny: PriorityClass"),
        ("rule", "other", "{verdict: deny, rule: teams/x}", "rule: expected teams/x, got teams/allowed"),
        ("message", "other", "{verdict: deny, message: hello}", "message: expected 'hello' in"),
        ("patch", "standard", "{verdict: allow, patch: []}", "patch: expected [], got [{"),
        ("warnings", "standard", "{verdict: allow, warnings: [x]}", "warnings: expected 'x' in none"),
        ("nothing could be judged", "7", "{verdict: deny}", "no verdict: request.object: Expected `str | null`"),
    ),
)
def test_a_case_that_does_not_hold_fails(write, tmp_path, name, expect, words):
    """What was expected and what came instead is told, to CI systems, too, and the exit code is 1."""
    result = run(write(name, expect), "--junit", tmp_path / "report.xml")
    assert result.exit_code == 1
    assert words in result.output
    assert "0 passed, 1 failed" in result.output
    suite = ET.parse(tmp_path / "report.xml").getroot()[0]
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("teams", "1", "1")
    assert suite[0].get("name") == "the case"
    assert words in suite[0][0].text


@pytest.mark.parametrize(
    ("change", "words"),
    cases(
        ("unknown field", ("expect:", "expects:"), "unknown field `expects`"),
        ("unknown verdict", ("verdict: allow", "verdict: maybe"), "Invalid enum value 'maybe'"),
        ("no policies", ("policies: ..", "policies: nowhere"), "nowhere"),
        ("bad object", ("value: 7", "value: x"), "spec.objects[0]: PriorityClass: Expected `int`"),
        ("no test at all", ("kind: PolicyTest", "kind: Other"), "no PolicyTest in"),
        ("nothing is changed", ("user: alice", "operation: UPDATE"), "UPDATE needs `oldObject`"),
        ("nothing is made", ("      object:", "      oldObject:"), "CREATE needs `object`"),
        ("no time", at("soon"), "spec.now: 'soon' is not an RFC 3339 instant"),
    ),
)
def test_a_test_that_cannot_be_run_is_an_error(write, change, words):
    """A mistake in a test file is no failed test: exit code 2, and where it is."""
    result = run(write("standard", "{verdict: allow}", change))
    assert (result.exit_code, words in result.output) == (2, True)


def test_in_a_pipe_each_case_is_on_one_line(write):
    """However long names are: a program finds name, verdict and result of a case on one line."""
    name = "a case with a long name " * 10 + "end"
    result = run(write("standard", "{verdict: allow}", ("name: the case", f"name: {name}")))
    assert [line.split()[-2:] for line in result.output.splitlines() if name in line] == [["allow", "ok"]]
