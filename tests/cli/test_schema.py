"""`giveway schema`: prints what is committed."""

from pathlib import Path

from click.testing import CliRunner

from webhook.cli.main import main


def test_schema_is_what_is_committed():
    """The output is the committed file, byte for byte."""
    result = CliRunner().invoke(main, ["schema"])
    assert result.exit_code == 0
    assert result.output == (Path(__file__).parents[2] / "policies" / "schema.json").read_text()


def test_schema_of_scenarios():
    """What a file for `giveway simulate --scenario` may say."""
    result = CliRunner().invoke(main, ["schema", "scenario"])
    assert (result.exit_code, "addNodes" in result.output) == (0, True)
