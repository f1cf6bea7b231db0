"""Words that readers whose third language is English do not know, or know for something else."""

import re

import pytest

from tests.docs.pages import ROOT

FOLDERS = ("certs", "docs", "manifests", "policies", "tests", "webhook")
TEXTS = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".md", ".yaml"}]
PLAIN = {
    r"\bof\s+late\b": "recently",
    r"\bfor\s+ever\b": "forever, or always",
    r"\bforever(?=[a-z])": "for every",
    r"\bane[w]\b": "again",
    r"\bBut\s+an? (?=\w+ that)": "Yet, or two sentences",
}
"""What nobody is to write, and what to write for it."""


@pytest.mark.parametrize("word", PLAIN)
def test_only_plain_words_are_used(word):
    """Code, tests, pages and policies say it in plain English."""
    found = [
        f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, hit.start()) + 1}: {hit[0]}"
        for path in [*TEXTS, *ROOT.glob("*.md")]
        for text in [path.read_text()]
        for hit in re.finditer(word, text)
    ]
    assert found == [], f"write: {PLAIN[word]}"
