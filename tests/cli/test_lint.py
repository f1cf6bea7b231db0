"""`giveway lint`: exit codes and the three formats."""

import json

import pytest
from click.testing import CliRunner

from webhook.cli.main import main

GOOD = """\
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {name: a}
spec: {rules: [{name: d, defaultPriorityClass: standard}]}
"""
WARNED = GOOD.replace("name: a}", "name: on}")
BAD = GOOD.replace("rules", "ruels")


NOTICE = "nothing reserves the range above one billion: a pod in some-namespace, made by anybody, gets 2000001000"


def unguarded(directory, summary="1 policy with 1 rule, nothing wrong"):
    """What is printed of a set about which that is all there is to say."""
    return f"{directory}: notice: {NOTICE}\n\n{directory}: {summary}, 1 notice\n"


def lint(*arguments):
    """Run the command."""
    return CliRunner().invoke(main, ["lint", *map(str, arguments)])


@pytest.fixture
def directory(tmp_path):
    """A directory without policies."""
    return tmp_path


def test_nothing_wrong(directory):
    """One line says what was read, and the exit code is 0."""
    (directory / "a.yaml").write_text(GOOD)
    result = lint(directory)
    assert (result.exit_code, result.output) == (0, unguarded(directory))


def test_warnings_alone_exit_with_0(directory):
    """A warning is shown and keeps nobody."""
    (directory / "a.yaml").write_text(WARNED)
    result = lint(directory)
    assert result.exit_code == 0
    assert 'warning: YAML 1.1 readers such as kubectl take on for true; write "on"' in result.output
    assert result.output.endswith(unguarded(directory, "1 policy with 1 rule, 1 warning"))


@pytest.mark.parametrize(
    ("fail_on", "text", "code"),
    [
        ("error", WARNED, 0),
        ("warning", WARNED, 1),
        ("warning", GOOD, 0),
        ("warning", GOOD.replace("{rules", "{match: {namespaces: [a.b]}, rules"), 1),
        ("notice", GOOD, 1),
    ],
)
def test_the_mildest_finding_that_fails(directory, fail_on, text, code):
    """`--fail-on` counts what example requests show like everything else."""
    (directory / "a.yaml").write_text(text)
    assert lint("--fail-on", fail_on, directory).exit_code == code


def test_errors_exit_with_1(directory):
    """The whole output for a file with mistakes."""
    (directory / "a.yaml").write_text(BAD)
    result = lint(directory)
    assert result.exit_code == 1
    assert result.output == (
        f'{directory}/a.yaml:4:7: error: PriorityPolicy spec needs "rules": The rules. (spec)\n'
        "    4 | spec: {ruels: [{name: d, defaultPriorityClass: standard}]}\n"
        "      |       ^\n"
        "\n"
        f'{directory}/a.yaml:4:8: error: unknown field "ruels" in PriorityPolicy spec; did you mean "rules"?'
        " (spec.ruels)\n"
        "    4 | spec: {ruels: [{name: d, defaultPriorityClass: standard}]}\n"
        "      |        ^\n"
        "\n"
        f"{directory}: 2 errors, 0 warnings; this set is not usable\n"
    )


def test_each_directory_is_a_set_of_its_own(directory):
    """The same names in two directories are no conflict, and one that is wrong makes the exit code."""
    for name, text in (("one", GOOD), ("two", GOOD), ("three", BAD)):
        (directory / name).mkdir()
        (directory / name / "a.yaml").write_text(text)
    assert lint(directory / "one", directory / "two").exit_code == 0
    assert lint(directory / "one", directory / "three").exit_code == 1


def test_json(directory):
    """For programs: counts and findings with their places."""
    (directory / "a.yaml").write_text(BAD)
    result = lint("--format", "json", directory)
    assert result.exit_code == 1
    report = json.loads(result.output)
    assert (report["errors"], report["warnings"]) == (2, 0)
    assert report["findings"][1] == {
        "file": f"{directory}/a.yaml",
        "line": 4,
        "column": 8,
        "severity": "error",
        "message": 'unknown field "ruels" in PriorityPolicy spec; did you mean "rules"?',
        "field": "spec.ruels",
    }


def test_json_of_a_finding_with_two_places(directory):
    """What two places make together names both."""
    (directory / "a.yaml").write_text(GOOD)
    (directory / "b.yaml").write_text(GOOD)
    report = json.loads(lint("--format", "json", directory).output)
    assert [one["file"] for one in report["findings"][0]["related"]] == [f"{directory}/a.yaml"]
    rules = "".join(f"  - name: {name}\n    reserve: {{from: 1, to: 5}}\n" for name in "ab")
    (directory / "a.yaml").write_text(f"{GOOD[: GOOD.index('spec:')]}spec:\n  rules:\n{rules}")
    (directory / "b.yaml").unlink()
    (finding,) = json.loads(lint("--format", "json", directory).output)["findings"]
    (other,) = finding["related"]
    assert (finding["field"], other["field"]) == ("spec.rules[1]", "spec.rules[0]")


def test_github(directory):
    """For GitHub workflows: one command a finding, with what has a meaning there escaped."""
    (directory / "a,b.yaml").write_text(BAD.replace("ruels", '"100%"'))
    result = lint("--format", "github", directory)
    assert result.exit_code == 1
    assert result.output.splitlines()[1].startswith(
        f'::error file={directory}/a%2Cb.yaml,line=4,col=8::unknown field "100%25" in PriorityPolicy spec'
    )


def test_github_says_what_nothing_is_about(directory):
    """A notice is an annotation as well; nothing else, nothing to annotate."""
    (directory / "a.yaml").write_text(GOOD)
    assert lint("--format", "github", directory).output == f"::notice file={directory}::{NOTICE}\n"


def test_colours_only_in_a_terminal(directory):
    """Piped output has no escape codes; a terminal gets the severity in colour."""
    (directory / "a.yaml").write_text(BAD)
    assert "\x1b[" not in lint(directory).output
    coloured = CliRunner().invoke(main, ["lint", str(directory)], color=True)
    assert "\x1b[31m\x1b[1merror\x1b[0m: " in coloured.output


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


def test_exceptions_are_listed_and_pointed_out_when_they_have_ended(directory):
    """One that is over is a warning with its place; all are listed, also for programs."""
    (directory / "a.yaml").write_text(EXCEPTED)
    result = lint(directory)
    file = directory / "a.yaml"
    assert result.exit_code == 0
    assert (
        f"{file}:7:5: warning: the exception of namespace b from a/d ended 2021-01-01T00:00:00Z; take it out, or ask"
        " its owner for another end (team-b: it moves)" in result.output
    )
    assert (
        f"{file}:8:5: exception: a/d: namespace c, until 3000-01-01T00:00:00Z (team-c: it moves)\n"
        f"{directory}: 1 policy with 1 rule, 1 warning, 1 notice\n" in result.output
    )
    found = json.loads(lint(directory, "--format", "json").output)
    assert [(row["who"], row["ended"], row["source"]) for row in found["exceptions"]] == [
        ("namespace b", True, f"{file}:7:5"),
        ("namespace c", False, f"{file}:8:5"),
    ]


def test_no_policy_is_an_error(directory):
    """A directory or file without policies is probably another one than was meant."""
    (directory / "below").mkdir()
    (directory / "below" / "a.yaml").write_text(GOOD)
    (directory / "empty.yaml").write_text("# nothing\n")
    for path in (directory, directory / "empty.yaml"):
        result = lint(path)
        assert result.exit_code == 1
        assert f"{path}: error: there is no policy here; sub-folders are not read" in result.output
    (directory / "empty.yaml").unlink()
    assert "holds no *.yaml file" in lint(directory).output


def test_classes_of_the_cluster(directory):
    """With the cluster's objects, a class that nobody has is pointed out, unless something else makes it."""
    (directory / "a.yaml").write_text(GOOD)
    (directory / "classes.json").write_text(
        '{"apiVersion": "v1", "kind": "List", "items": [{"kind": "PriorityClass", "metadata": {"name": "standrd"}}]}'
    )
    result = lint(directory, "--objects", directory / "classes.json")
    assert result.exit_code == 0
    assert 'PriorityClass "standard" is not among the objects; did you mean "standrd"?' in result.output
    known = lint(directory, "--objects", directory / "classes.json", "--known-class", "stand*")
    assert known.output == unguarded(directory)
    assert lint(directory, "--objects", directory / "a.yaml", "--known-class", "x").exit_code == 0


def test_explain(directory):
    """One table of who may use and define which range; programs get the same rows."""
    text = GOOD.replace("defaultPriorityClass: standard", "reserve: {from: 5, to: 9, use: {namespaces: [a]}}")
    (directory / "a.yaml").write_text(text)
    result = lint(directory, "--explain")
    assert result.exit_code == 0
    assert "5 to 9 │ use    │ namespace a" in result.output
    rights = json.loads(lint(directory, "--format", "json").output)["rights"]
    assert [(row["right"], row["people"], row["rule"]) for row in rights] == [
        ("use", "namespace a", "a/d"),
        ("define", "nobody", "a/d"),
    ]
    (directory / "a.yaml").write_text(GOOD)
    assert lint(directory, "--explain").output.endswith("No rule gives a right.\n")
