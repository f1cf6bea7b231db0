"""What the page says of a model, and what it does not let through."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import msgspec
import pytest

from tests.page.pages import EMPTY, HOSTILE, NOW, busy
from webhook.page.html import document, headline, sections, version_of
from webhook.page.markup import instant, number, text
from webhook.page.model import DecisionShown, DeviceShown, Page, PlanShown, VictimShown, WaitingPod

VOID = {"meta", "link", "br", "rect", "circle", "line"}


class Outline(HTMLParser):
    """The elements of a document, in order; closing tags must match."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(markup)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def named(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def test_hostile_names_stay_text():
    """No name, reason or annotation becomes an element or an attribute, wherever it stands."""
    harmless, hostile = Outline(document(busy())), Outline(document(busy(HOSTILE)))
    assert [name for name, _ in hostile.elements] == [name for name, _ in harmless.elements]
    assert [list(attributes) for _, attributes in hostile.elements] == [
        list(attributes) for _, attributes in harmless.elements
    ]
    shown = "".join(hostile.texts)
    assert shown.count("<script>") > 10, "it is shown as it is"
    assert "\u202e" not in document(busy(HOSTILE)), "nothing turns the direction of what follows"


def test_no_resource_from_outside_and_nothing_inline():
    """Everything comes from the server itself, and the Content-Security-Policy needs no exception for inline code."""
    page = Outline(document(busy()))
    for tag, attributes in page.elements:
        assert "style" not in attributes, tag
        assert not [name for name in attributes if name.startswith("on")], tag
        for name in ("src", "href"):
            assert re.match(r"$|#|page\.|debug/|data:,$", attributes.get(name) or ""), (tag, attributes)
    assert "style" not in [tag for tag, _ in page.elements]


def test_a_screen_reader_finds_its_way():
    """There are landmarks, one first heading, a heading for every section, and a caption for every table."""
    markup = document(busy())
    page = Outline(markup)
    tags = [tag for tag, _ in page.elements]
    assert [tags.count(tag) for tag in ("header", "nav", "main", "footer", "h1")] == [1] * 5
    titles = {attributes["id"] for attributes in page.named("h2")}
    assert [section["aria-labelledby"] in titles for section in page.named("section")] == [True] * 7
    assert tags.count("table") == tags.count("caption") > 5
    assert all(attributes.get("scope") for attributes in page.named("th"))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = [attributes["href"][1:] for attributes in page.named("a") if attributes["href"].startswith("#")]
    assert set(targets) <= set(ids)
    assert 'aria-live="polite"' in markup
    assert [attributes.get("aria-current") for attributes in page.named("li")].count("step") == 2
    assert all(svg.get("aria-hidden") == "true" or svg.get("aria-label") for svg in page.named("svg"))


def test_a_gang_is_one_plan():
    """It says how many members it needs and has, where each goes, and which victims go as one."""
    plans = sections(busy())["plans"]
    said = " ".join("".join(Outline(plans).texts).split())
    assert "Gang PodGroup team/web" in said
    assert "needs 4 members: 1 bound, 2 nominated, 1 missing" in said
    assert "team/web-3 to node-web to be nominated" in said
    assert "and 2 members more" in said
    assert plans.count('<li class="group">') == 1
    inside = plans.partition('<li class="group">')[2].partition("</ul>")[0]
    assert "JobSet batch/web, as one:" in inside
    assert ("batch/web-0" in inside, "batch/web-1" in inside, ">batch/web<" in inside) == (True, True, False)


def test_an_empty_cluster_says_so():
    """Every section says in words that there is nothing, instead of showing an empty table."""
    made = sections(EMPTY)
    assert all("<table" not in markup for markup in made.values())
    for name in made.keys() - {"summary"}:
        assert 'class="empty"' in made[name], name


def test_ten_thousand_waiting_pods_take_a_bounded_page():
    """What is shown is the first rows and how many more there are; long texts are cut."""
    long = "x" * 100_000
    victims = tuple(VictimShown(pod=f"a/{long}", state=long, because=long) for _ in range(12))
    page = Page(
        leadership=EMPTY.leadership,
        waiting=tuple(WaitingPod(pod=f"a/{long}", priority=1, state="active", reason=long) for _ in range(50)),
        waiting_total=10_000,
        plans=tuple(
            PlanShown(preemptor=long, priority=1, node=long, policy=long, step=1, victims=victims, more_victims=988)
            for _ in range(20)
        ),
        plans_total=5_000,
        decisions=tuple(
            DecisionShown(plan=f"{n}", at=long, preemptor=long, node=long, policy=long, victims=victims)
            for n in range(20)
        ),
    )
    markup = document(page)
    assert len(markup) < 700_000
    assert "and 9\u202f950 pods more" in markup
    assert "and 4\u202f980 plans more" in markup
    assert "and 988 victims more" in markup


def test_the_devices_of_a_plan():
    """Which are free, which claims have the others, and how many more there are; a plan without devices lists none."""
    waiting = DeviceShown("gpu/node-1/<d0>", ("default/c-0", "default/c-1"))
    plan = PlanShown(preemptor="p", priority=1, node="node-1", policy="x", step=2, devices=(waiting,), more_devices=3)
    free = PlanShown(
        preemptor="q", priority=1, node="node-1", policy="x", step=2, devices=(DeviceShown("gpu/node-1/d1"),)
    )
    bare = PlanShown(preemptor="r", priority=1, node="node-1", policy="x", step=2)
    markup = document(Page(leadership=EMPTY.leadership, plans=(plan, free, bare), plans_total=3))
    assert markup.count('aria-label="Devices"') == 2
    assert "gpu/node-1/&lt;d0&gt;" in markup
    assert "waits for default/c-0, default/c-1 to free it" in markup
    assert 'gpu/node-1/d1</span> <span class="state">free, held for it' in markup
    assert "and 3 devices more" in markup


def test_a_section_changes_only_with_what_it_shows():
    """A decision more changes the decisions and no other section."""
    before = busy()
    after = msgspec.structs.replace(before, decisions=(*before.decisions, *before.decisions))
    one, two = sections(before), sections(after)
    assert {name for name in one if version_of(one[name]) != version_of(two[name])} == {"decisions"}


def test_the_headline():
    """One sentence says how many wait, and it is plain text."""
    assert headline(busy()) == "9 pods waiting, 2 plans under way, 3 evictions in the last hour"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param(2_000_001_000, "2\u202f000\u202f001\u202f000", id="in groups"),
        pytest.param(-2_147_483_648, "\u22122\u202f147\u202f483\u202f648", id="below zero"),
        pytest.param(7, "7", id="small"),
    ],
)
def test_numbers(value, shown):
    """Long numbers can be read."""
    assert number(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param("a\x00b\u202ec\u200bd", "a\ufffdb\ufffdc\ufffdd", id="control characters"),
        pytest.param("'\"<>&", "&#x27;&quot;&lt;&gt;&amp;", id="markup"),
        pytest.param("x" * 500, "x" * 399 + "…", id="too long"),
    ],
)
def test_texts(value, shown):
    """Texts from the cluster are made harmless in one place."""
    assert text(value) == shown


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), 1e300, -1e300])
def test_impossible_instants(seconds):
    """A time that no calendar has does not break the page."""
    assert instant(seconds) == "never"


def test_instants():
    """Times are in UTC, to the second."""
    assert 'datetime="2027-01-15T08:00:00Z"' in instant(NOW)
