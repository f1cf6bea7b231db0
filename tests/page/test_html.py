"""What the page says of a model, and what it does not let through."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser

import pytest

from tests.cases import cases
from tests.page.pages import EMPTY, HOSTILE, NOW, busy
from webhook.page.html import document, sections
from webhook.page.markup import instant, number, text
from webhook.page.model import DecisionShown, Page, PlanShown, VictimShown, WaitingPod

WHEN = '<time datetime="2027-01-15T08:00:00Z"><span class="date">'
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
    shapes = [[(name, list(attributes)) for name, attributes in page.elements] for page in (harmless, hostile)]
    assert shapes[0] == shapes[1]
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
    markup = sections(busy("<d0>"))["plans"]
    assert markup.count('aria-label="Devices"') == 1
    assert 'gpu/&lt;d0&gt;/&lt;d0&gt;</span> <span class="state">waits for team/&lt;d0&gt; to free it' in markup
    assert 'gpu/&lt;d0&gt;/free</span> <span class="state">free, held for it' in markup
    assert "and 3 devices more" in markup


@pytest.mark.parametrize(
    ("shown", "expected"),
    cases(
        ("in groups", number(2_000_001_000), "2\u202f000\u202f001\u202f000"),
        ("below zero", number(-2_147_483_648), "\u22122\u202f147\u202f483\u202f648"),
        ("small", number(7), "7"),
        ("control characters", text("a\x00b\u202ec\u200bd"), "a\ufffdb\ufffdc\ufffdd"),
        ("markup", text("'\"<>&"), "&#x27;&quot;&lt;&gt;&amp;"),
        ("too long", text("x" * 500), "x" * 399 + "…"),
        ("an instant, in UTC", instant(NOW), f"{WHEN}2027-01-15 </span>08:00:00</time>"),
        *((f"no instant: {seconds}", instant(seconds), "never") for seconds in (math.inf, math.nan, 1e300, -1e300)),
    ),
)
def test_the_smallest_pieces(shown, expected):
    """Long numbers can be read, texts are made harmless in one place, and no time breaks the page."""
    assert shown == expected
