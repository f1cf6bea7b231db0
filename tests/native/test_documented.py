"""The page about native policies: each test that its table names is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = sorted(set(re.findall(r"(tests/[\w/]+\.py)::(\w+)", (ROOT / "docs" / "native-policies.md").read_text())))


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_what_the_table_names_is_there(file, name):
    """A row of the table is shown by a test."""
    assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE)
