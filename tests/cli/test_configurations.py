"""`giveway configurations`: what it prints can be applied as it is."""

import base64

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from tests.manifests.objects import POLICIES
from webhook.cli.main import main
from webhook.policy.files.loading import load_or_raise
from webhook.registration.applied import applied_entries
from webhook.registration.entries import WebhookTarget


def printed(*arguments):
    result = CliRunner().invoke(main, ["configurations", *arguments])
    return result.exit_code, result.output


def test_both_configurations_are_printed(tmp_path):
    """The two objects with every entry, and with the authority where one is given."""
    (tmp_path / "ca.crt").write_bytes(b"PEM")
    code, text = printed("--policies", str(POLICIES), "--ca-file", str(tmp_path / "ca.crt"))
    assert code == 0
    found = {document["kind"]: document for document in YAML(typ="safe").load_all(text)}
    expected = applied_entries(load_or_raise(POLICIES), WebhookTarget())
    assert found.keys() == expected.keys()
    for kind, document in found.items():
        assert document["metadata"] == {"name": "giveway"}
        for entry in document["webhooks"]:
            assert base64.b64decode(entry["clientConfig"].pop("caBundle")) == b"PEM"
        assert document["webhooks"] == expected[kind]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--policies", "/nowhere"], "/nowhere", id="no-policies"),
        pytest.param(["--policies", str(POLICIES), "--url", "http://x"], "https://", id="plain-http"),
        pytest.param(["--policies", str(POLICIES), "--service", "x"], "NAMESPACE/NAME", id="service-without-namespace"),
        pytest.param(["--policies", str(POLICIES), "--ca-file", "/none"], "/none", id="no-authority"),
    ],
)
def test_what_cannot_be_printed_is_said(arguments, message):
    """Wrong options and unreadable files end with their reason."""
    code, text = printed(*arguments)
    assert code != 0
    assert message in text
