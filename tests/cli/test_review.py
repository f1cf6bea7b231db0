"""`giveway review --phase`: reviews answered offline, as the server answers them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.admission.builders import UID, make_pod, make_review, patch_of
from webhook.cli.review import command

POLICIES = Path(__file__).parents[2] / "policies"


def run(*arguments: str, stdin: str | dict | None = None):
    given = json.dumps(stdin) if isinstance(stdin, dict) else stdin
    return CliRunner().invoke(command, ["--policies", str(POLICIES), "--phase", *arguments], input=given)


def test_several_files_are_answered_in_turn(review, tmp_path):
    """Each file's answer is printed, in their order, by the classes among the objects."""
    paths = []
    for name in ("one", "two"):
        body = make_review(make_pod(priorityClassName="standard"))
        body["request"]["uid"] = name
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(json.dumps(body))
    result = review("--phase", "mutate", *paths)
    first, end = json.JSONDecoder().raw_decode(result.stdout)
    second = json.loads(result.stdout[end:])
    assert [first["response"]["uid"], second["response"]["uid"]] == ["one", "two"]
    assert {"op": "add", "path": "/spec/priority", "value": 7} in patch_of(second["response"])


def test_a_refusal_is_an_answer_and_what_is_no_review_fails():
    """The exit code says whether there is a verdict, not which one; bad input gets its well-formed answer."""
    result = run("validate", "--explain", stdin=make_review(make_pod(priorityClassName="ghost")))
    assert (result.exit_code, json.loads(result.stdout)["response"]["allowed"]) == (0, False)
    # What refuses without any policy file is listed as well
    assert "builtin/class-exists yes deny no PriorityClass with name ghost was found" in " ".join(result.stderr.split())
    result = run("validate", stdin='{"kind": "Pod"}')
    assert (result.exit_code, json.loads(result.stdout)["response"]["status"]["code"]) == (2, 400)


VALIDATED = (
    "kubernetes/system-range yes deny priority 2000001000",
    "preemptibility/shield no skip it says nothing of this request",
    "builtin/shield no skip no protected annotation changes",
    "validate: denied",
)
MUTATED = (
    "preemptibility/copy yes allow a new pod takes over",
    "kubernetes/system-range yes deny, at validation priority 2000001000",
    "mutate: allowed",
)


@pytest.mark.parametrize(("phase", "lines"), [("validate", VALIDATED), ("mutate", MUTATED)], ids=["validate", "mutate"])
def test_explain_says_of_every_rule_why(phase, lines):
    """Every rule considered is listed on standard error, with why it did or did not apply."""
    pod = make_pod(
        priorityClassName="system-node-critical", priority=2000001000, preemptionPolicy="PreemptLowerPriority"
    )
    result = run(phase, "--explain", stdin=make_review(pod))
    assert json.loads(result.stdout)["response"]["uid"] == UID
    shown = [" ".join(line.split()) for line in result.stderr.splitlines()]
    for line in lines:
        assert any(line in row for row in shown), "in a pipe a rule is on one line"


def test_objects_that_cannot_be_read_are_named(tmp_path):
    """The file, and what is wrong in it."""
    (tmp_path / "objects.yaml").write_text("kind: PriorityClass\nvalue: x")
    result = run("mutate", "--objects", str(tmp_path / "objects.yaml"), stdin="{}")
    assert (result.exit_code, "PriorityClass: Expected `int`, got `str`" in result.stderr) == (2, True)
