"""The picture of the ladder: order, bands, bars."""

from __future__ import annotations

import re

from tests.page.pages import rung
from webhook.page.ladder import NARROW, WIDE, picture
from webhook.page.model import Band, Ladder


def names(ladder, width=WIDE):
    """The names of bands and rungs from top to bottom."""
    found = re.findall(r'class="(?:band-)?name" x="[\d.]+" y="([\d.]+)">([^<]+)<', picture(ladder, width))
    return [name for _, name in sorted(found, key=lambda item: float(item[0]))]


def test_order_and_bands():
    """The highest is on top; a band stands above its rungs, and an empty one where it belongs."""
    ladder = Ladder(
        (rung("top", 5000), rung("web", 1500), rung("api", 1000), rung("batch", 100)),
        (Band("own", 3000, 3999), Band("online", 1000, 1999)),
    )
    expected = ["top", "own", "online", "web", "api", "batch"]
    assert names(ladder) == expected
    assert names(ladder, NARROW) == expected


def test_a_rung_in_two_bands_stands_in_the_narrower():
    """Ranges may overlap; each rung is drawn once."""
    ladder = Ladder((rung("web", 1500),), (Band("wide", 0, 9999), Band("narrow", 1000, 1999)))
    assert names(ladder) == ["wide", "narrow", "web"]


def test_bars_are_to_scale_and_inside():
    """Bars are as long as their pods are many, a few pods can still be seen, and nothing is drawn outside."""
    rungs = (rung("many", 2, running=1000, preemptible=700, protected=200), rung("few", 1, running=1, preemptible=1))
    for width in (WIDE, NARROW):
        drawn = picture(Ladder(rungs), width)
        bars = re.findall(r'class="preemptible" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', drawn)
        assert float(bars[0][1]) > 50 * float(bars[1][1]) >= 150
        edges = re.findall(r'<rect class="\w+"[^>]* x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', drawn)
        assert max(float(x) + float(size) for x, size in edges) <= width


def test_kinds_are_told_apart_without_colour():
    """Protected pods are hatched, pending ones are an outline, and the numbers are written beside the bar."""
    drawn = picture(Ladder((rung("one", 1, running=9, preemptible=4, protected=3, pending=2),)), WIDE)
    assert '<rect class="protected" fill="url(#hatch-1040)"' in drawn
    assert "4 preemptible · 3 protected · 2 kept · 2 pending" in drawn
