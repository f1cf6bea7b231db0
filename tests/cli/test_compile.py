"""`giveway compile`: what it prints, what it names, and its exit codes."""

import base64
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from tests.cases import cases
from webhook.cli.main import main
from webhook.policy.files.loading import load_or_raise
from webhook.registration.entries import WebhookTarget, entries

POLICIES = Path(__file__).parents[2] / "policies"
SETS = [POLICIES, POLICIES / "examples" / "teams", POLICIES / "examples" / "co-location"]


def run(*arguments):
    return CliRunner().invoke(main, ["compile", *map(str, arguments)])


@pytest.mark.parametrize("directory", SETS, ids=lambda path: path.name)
def test_what_is_shipped_compiles_in_full(directory):
    """The shipped set and both examples need nothing from the webhook; every document is an object of the API."""
    classes = directory / "cluster" / "classes.yaml"
    result = run(directory, "--objects", classes if classes.exists() else SETS[1] / "cluster" / "classes.yaml")
    assert (result.exit_code, result.stderr) == (0, "")
    found = list(YAML(typ="safe", pure=True).load_all(StringIO(result.stdout)))
    assert {one["apiVersion"] for one in found} == {"admissionregistration.k8s.io/v1"}
    assert len({(one["kind"], one["metadata"]["name"]) for one in found}) == len(found)


def test_what_cannot_be_expressed_is_named_and_nothing_is_printed():
    """Without the classes defaults and copies stay with the webhook; --partial prints the rest, with a comment."""
    result = run(SETS[1])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "not enforced natively: teams/default: " in result.stderr
    assert "not enforced natively: teams/copy: " in result.stderr
    assert "--partial prints the rest" in result.stderr
    result = run(SETS[1], "--partial")
    assert result.exit_code == 0
    assert "\n# Not enforced natively: teams/default: " in result.stdout
    assert "giveway-teams-pods-enforce" in result.stdout


def test_without_mutation_nothing_mutates():
    """For clusters that have only ValidatingAdmissionPolicies."""
    result = run(POLICIES, "--partial", "--without-mutation")
    assert (result.exit_code, "Mutating" in result.stdout) == (0, False)


def test_both_webhook_configurations_are_printed(tmp_path):
    """The two objects with every entry, and with the authority where one is given."""
    (tmp_path / "ca.crt").write_bytes(b"PEM")
    result = run(POLICIES, "--webhook", "--ca-file", tmp_path / "ca.crt", "--system-namespace", "policy")
    assert result.exit_code == 0
    found = {document["kind"]: document for document in YAML(typ="safe").load_all(result.stdout)}
    expected = entries(
        load_or_raise(POLICIES),
        WebhookTarget(namespace="policy", reconciler="system:serviceaccount:policy:giveway-reconciler"),
    )
    assert found.keys() == expected.keys()
    for kind, document in found.items():
        assert document["metadata"] == {"name": "giveway"}
        for entry in document["webhooks"]:
            assert base64.b64decode(entry["clientConfig"].pop("caBundle")) == b"PEM"
        assert document["webhooks"] == expected[kind]


@pytest.mark.parametrize(
    ("arguments", "message"),
    cases(
        ("no-policies", ["/nowhere"], "/nowhere"),
        ("plain-http", [POLICIES, "--url", "http://x"], "https://"),
        ("no-authority", [POLICIES, "--ca-file", "/none"], "/none"),
    ),
)
def test_entries_that_cannot_be_printed_are_said(arguments, message):
    """Wrong options and unreadable files end with their reason."""
    result = run(*arguments, "--webhook")
    assert (result.exit_code != 0, message in result.output) == (True, True)
