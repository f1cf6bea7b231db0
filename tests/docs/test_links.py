"""The pages of docs/: rules and facts have numbers that code cites, and links lead somewhere."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT

SOURCES = [path for folder in ("webhook", "certs", "tests") for path in sorted((ROOT / folder).rglob("*.py"))]
CITATION = re.compile(r"docs/(semantics|kubernetes-behaviour)\.md( [A-Z]\d*(?:(?:,| and| to) [A-Z]\d*)*)?(?![\w.])")
NUMBERS = {
    "semantics": re.compile(r"^#+ ([A-G]\d*)[. ]|^\| \*\*(G\d)\*\* \|", re.MULTILINE),
    "kubernetes-behaviour": re.compile(r"^\| (K\d+) \|", re.MULTILINE),
}


def numbers(page):
    """The numbers that a page gives, in its order."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    return ["".join(found.groups(default="")) for found in NUMBERS[page].finditer(text)]


def citations(path):
    """Every citation in a file: the page, and the numbers after it."""
    for found in CITATION.finditer(path.read_text()):
        yield found[1], re.findall(r"[A-Z]\d*", found[2] or "")


@pytest.mark.parametrize("page", NUMBERS)
def test_numbers_are_given_once(page):
    """A number means one rule or fact."""
    given = numbers(page)
    assert given
    assert len(given) == len(set(given))


def test_cited_numbers_exist():
    """Whoever cites a page by number cites one that it has, on the same line."""
    known = {page: set(numbers(page)) for page in NUMBERS}
    cited = [(path, page, number) for path in SOURCES for page, found in citations(path) for number in found or [""]]
    assert {page for _, page, _ in cited} == set(NUMBERS)
    assert [one for one in cited if one[2] not in known[one[1]]] == []


@pytest.mark.parametrize("page", NUMBERS)
def test_numbers_in_the_pages_exist(page):
    """The pages cite each other's facts by their bare number."""
    known = set(numbers("kubernetes-behaviour"))
    assert set(re.findall(r"\bK\d+\b", (ROOT / "docs" / f"{page}.md").read_text())) <= known


@pytest.mark.parametrize("word", ["SEMANTICS", "FACTS"])
def test_nothing_cites_a_file_that_is_not_here(word):
    """Sources cite pages of this repository."""
    citing = [path for path in SOURCES if path != Path(__file__) and re.search(rf"\b{word}\b", path.read_text())]
    assert citing == []


@pytest.mark.parametrize("page", [*PAGES, ROOT / "ARCHITECTURE.md"], ids=lambda path: path.name)
def test_links_lead_somewhere(page):
    """A relative link names a file, and its anchor a heading of that file."""
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        file = (page.parent / target) if target else page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file.read_text()), f"{target}#{anchor}"


def anchors(text):
    """Where a link into this text can lead: the anchors that GitHub gives headings, and those that stand there."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)">', text))
