"""The reference page: what is committed is what the tables say, and it leaves no field out."""

from pathlib import Path

import pytest

from webhook.policy.files.document_kinds import json_schema
from webhook.policy.files.reference import markdown

SCHEMA = json_schema()
PAGE = markdown(SCHEMA)
SECTIONS = dict(part.split("\n", 1) for part in PAGE.split("\n## ")[1:])


def test_the_committed_page_is_current():
    """`make schema` writes the page; whoever changes a field without it hears of it here."""
    assert (Path(__file__).parents[3] / "docs" / "policy-reference.md").read_text() == PAGE


@pytest.mark.parametrize("name", SCHEMA["definitions"])
def test_every_field_of_every_mapping_is_there(name):
    """Each mapping has a section, and each of its fields a row."""
    for field in SCHEMA["definitions"][name].get("properties", {}):
        assert f"`{field}`" in SECTIONS[name]


@pytest.mark.parametrize(
    ("shape", "row"),
    [
        pytest.param({"type": "integer", "minimum": 1}, "| `x` | whole number from 1 |  |  |", id="number"),
        pytest.param({"type": "boolean", "default": False}, "| `x` | `true`, `false` | `false` |  |", id="flag"),
        pytest.param({"enum": ["a", "b"], "default": "a"}, "| `x` | `a`, `b` | `a` |  |", id="choice"),
        pytest.param({"type": "array", "items": {"type": "string"}}, "| `x` | list of text |  |  |", id="list"),
        pytest.param({"type": "string", "description": "a | b"}, "| `x` | text |  | a \\| b |", id="escaped"),
    ],
)
def test_rows(shape, row):
    """A field's row says what may stand there, and what holds without it."""
    schema = {"properties": {"kind": {"enum": ["K"]}}, "definitions": {"K": {"properties": {"x": shape}}}}
    assert row in markdown(schema).splitlines()
