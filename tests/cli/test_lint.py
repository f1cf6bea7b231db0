"""`giveway lint`: exit codes and the three formats."""

import json

import pytest
from click.testing import CliRunner

from tests.cases import cases
from webhook.cli.main import main

GOOD = """\
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {name: a}
spec: {rules: [{name: d, defaultPriorityClass: standard}]}
"""
WARNED = GOOD.replace("name: a}", "name: on}")
BAD = GOOD.replace("rules", "ruels")
NO_SUCH = GOOD.replace("{rules", "{match: {namespaces: [a.b]}, rules")
NOTICE = "nothing reserves the range above one billion: a pod in some-namespace, made by anybody, gets 2000001000"


def lint(*arguments, color=False):
    """Run the command."""
    return CliRunner().invoke(main, ["lint", *map(str, arguments)], color=color)


def report(*arguments):
    """What programs get."""
    return json.loads(lint("--format", "json", *arguments).output)


@pytest.fixture
def file(tmp_path):
    """A file of policies."""
    return tmp_path / "a.yaml"


@pytest.mark.parametrize(
    ("text", "fail_on", "code", "said", "summary"),
    cases(
        ("nothing wrong", GOOD, "error", 0, "", "nothing wrong, 1 notice"),
        ("a warning", WARNED, "error", 0, 'warning: YAML 1.1 readers such as kubectl take on for true; write "on"', ""),
        ("a warning that fails", WARNED, "warning", 1, "", "1 warning, 1 notice"),
        ("no warning that fails", GOOD, "warning", 0, "", "nothing wrong, 1 notice"),
        ("what example requests show", NO_SUCH, "warning", 1, "", ""),
        ("a notice that fails", GOOD, "notice", 1, f": notice: {NOTICE}\n\n", "nothing wrong, 1 notice"),
    ),
)
def test_the_mildest_finding_that_fails(file, text, fail_on, code, *, said, summary):
    """Warnings keep nobody unless `--fail-on` says so; the last line says what was read and what is wrong with it."""
    file.write_text(text)
    result = lint("--fail-on", fail_on, file.parent)
    assert (result.exit_code, said in result.output) == (code, True)
    assert not summary or result.output.endswith(f"{file.parent}: 1 policy with 1 rule, {summary}\n")


def test_errors_exit_with_1(file):
    """The whole output for a file with mistakes."""
    file.write_text(BAD)
    result = lint(file.parent)
    assert result.exit_code == 1
    assert result.output == (
        f'{file}:4:7: error: PriorityPolicy spec needs "rules": The rules. (spec)\n'
        "    4 | spec: {ruels: [{name: d, defaultPriorityClass: standard}]}\n"
        "      |       ^\n"
        "\n"
        f'{file}:4:8: error: unknown field "ruels" in PriorityPolicy spec; did you mean "rules"?'
        " (spec.ruels)\n"
        "    4 | spec: {ruels: [{name: d, defaultPriorityClass: standard}]}\n"
        "      |        ^\n"
        "\n"
        f"{file.parent}: 2 errors, 0 warnings; this set is not usable\n"
    )


def test_each_directory_is_a_set_of_its_own(tmp_path):
    """The same names in two directories are no conflict, and one that is wrong makes the exit code."""
    for name, text in (("one", GOOD), ("two", GOOD), ("three", BAD)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.yaml").write_text(text)
    assert lint(tmp_path / "one", tmp_path / "two").exit_code == 0
    assert lint(tmp_path / "one", tmp_path / "three").exit_code == 1


def test_json(file):
    """For programs: counts and findings with their places; what two places make together names both."""
    file.write_text(BAD)
    bad = report(file.parent)
    assert (bad["errors"], bad["warnings"]) == (2, 0)
    assert bad["findings"][1] == {
        "file": str(file),
        "line": 4,
        "column": 8,
        "severity": "error",
        "message": 'unknown field "ruels" in PriorityPolicy spec; did you mean "rules"?',
        "field": "spec.ruels",
    }
    rules = "".join(f"  - name: {name}\n    reserve: {{from: 1, to: 5}}\n" for name in "ab")
    file.write_text(f"{GOOD[: GOOD.index('spec:')]}spec:\n  rules:\n{rules}")
    [finding] = report(file.parent)["findings"]
    [other] = finding["related"]
    assert (finding["field"], other["field"]) == ("spec.rules[1]", "spec.rules[0]")
    (file.parent / "b.yaml").write_text(file.read_text())
    assert [each["file"] for each in report(file.parent)["findings"][0]["related"]] == [str(file)]


def test_github(tmp_path):
    """For GitHub workflows: one command a finding, a notice, too, with what has a meaning there escaped."""
    (tmp_path / "a,b.yaml").write_text(BAD.replace("ruels", '"100%"'))
    result = lint("--format", "github", tmp_path)
    assert result.exit_code == 1
    assert result.output.splitlines()[1].startswith(
        f'::error file={tmp_path}/a%2Cb.yaml,line=4,col=8::unknown field "100%25" in PriorityPolicy spec'
    )
    (tmp_path / "a,b.yaml").write_text(GOOD)
    assert lint("--format", "github", tmp_path).output == f"::notice file={tmp_path}::{NOTICE}\n"


def test_colours_only_in_a_terminal(file):
    """Piped output has no escape codes; a terminal gets the severity in colour."""
    file.write_text(BAD)
    assert "\x1b[" not in lint(file.parent).output
    assert "\x1b[31m\x1b[1merror\x1b[0m: " in lint(file.parent, color=True).output


EXCEPTED = """\
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {name: a}
spec:
  rules: [{name: d, priorityClasses: {deny: [x]}}]
  exceptions:
  - {match: {namespaces: [b]}, rules: [d], reason: it moves, owner: team-b, until: 2020-12-31}
  - {match: {namespaces: [c]}, rules: [d], reason: it moves, owner: team-c, until: 2999-12-31}
"""


def test_exceptions_are_listed_and_pointed_out_when_they_have_ended(file):
    """One that is over is a warning with its place; all are listed, also for programs."""
    file.write_text(EXCEPTED)
    result = lint(file.parent)
    assert result.exit_code == 0
    assert (
        f"{file}:7:5: warning: the exception of namespace b from a/d ended 2021-01-01T00:00:00Z; take it out, or ask"
        " its owner for another end (team-b: it moves)" in result.output
    )
    assert (
        f"{file}:8:5: exception: a/d: namespace c, until 3000-01-01T00:00:00Z (team-c: it moves)\n"
        f"{file.parent}: 1 policy with 1 rule, 1 warning, 1 notice\n" in result.output
    )
    assert [(row["who"], row["ended"], row["source"]) for row in report(file.parent)["exceptions"]] == [
        ("namespace b", True, f"{file}:7:5"),
        ("namespace c", False, f"{file}:8:5"),
    ]


def test_no_policy_is_an_error(tmp_path):
    """A directory or file without policies is probably another one than was meant."""
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a.yaml").write_text(GOOD)
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    for path in (tmp_path, tmp_path / "empty.yaml"):
        result = lint(path)
        assert result.exit_code == 1
        assert f"{path}: error: there is no policy here; sub-folders are not read" in result.output
    (tmp_path / "empty.yaml").unlink()
    assert "holds no *.yaml file" in lint(tmp_path).output


def test_classes_of_the_cluster(file):
    """With the cluster's objects, a class that nobody has is pointed out, unless something else makes it."""
    file.write_text(GOOD)
    objects = file.parent / "classes.json"
    objects.write_text(
        '{"apiVersion": "v1", "kind": "List", "items": [{"kind": "PriorityClass", "metadata": {"name": "standrd"}}]}'
    )
    result = lint(file.parent, "--objects", objects)
    assert result.exit_code == 0
    assert 'PriorityClass "standard" is not among the objects; did you mean "standrd"?' in result.output
    assert lint(file.parent, "--objects", objects, "--known-class", "stand*").output == lint(file.parent).output
    assert lint(file.parent, "--objects", file, "--known-class", "x").exit_code == 0


def test_explain(file):
    """One table of who may use and define which range; programs get the same rows."""
    file.write_text(GOOD.replace("defaultPriorityClass: standard", "reserve: {from: 5, to: 9, use: {namespaces: [a]}}"))
    result = lint(file.parent, "--explain")
    assert result.exit_code == 0
    assert "5 to 9 │ use    │ namespace a" in result.output
    assert [(row["right"], row["people"], row["rule"]) for row in report(file.parent)["rights"]] == [
        ("use", "namespace a", "a/d"),
        ("define", "nobody", "a/d"),
    ]
    file.write_text(GOOD)
    assert lint(file.parent, "--explain").output.endswith("No rule gives a right.\n")
