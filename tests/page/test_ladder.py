"""The picture of the ladder: order, bands, bars."""

from __future__ import annotations

import re

from tests.page.pages import rung
from webhook.page.ladder import picture
from webhook.page.model import Band, Ladder


def names(ladder):
    """The names of bands and rungs from top to bottom."""
    return re.findall(r'class="(?:band-)?name[^"]*">([^<]+)<', picture(ladder))


def test_order_and_bands():
    """The highest is on top; a band stands above its rungs, and an empty one where it belongs."""
    ladder = Ladder(
        (rung("top", 5000), rung("web", 1500), rung("api", 1000), rung("batch", 100)),
        (Band("own", 3000, 3999), Band("online", 1000, 1999)),
    )
    assert names(ladder) == ["top", "own", "online", "web", "api", "batch"]


def test_a_rung_in_two_bands_stands_in_the_narrower():
    """Ranges may overlap; each rung is drawn once."""
    ladder = Ladder((rung("web", 1500),), (Band("wide", 0, 9999), Band("narrow", 1000, 1999)))
    assert names(ladder) == ["wide", "narrow", "web"]


def test_bars_are_to_scale_and_inside():
    """Bars are as long as their pods are many, a few pods can still be seen, and nothing is drawn outside."""
    rungs = (rung("many", 2, running=1000, preemptible=700, protected=200), rung("few", 1, running=1, preemptible=1))
    drawn = picture(Ladder(rungs)).partition('<ol class="ladder">')[2]
    many, few = re.findall(r'class="preemptible" x="[\d.]+%" width="([\d.]+)%"', drawn)
    assert float(many) > 100 * float(few) > 0
    assert max(float(x) + float(size) for x, size in re.findall(r'x="([\d.]+)%" width="([\d.]+)%"', drawn)) <= 100


def test_kinds_are_told_apart_without_colour():
    """Protected pods are hatched, pending ones are an outline, and the numbers are written beside the bar."""
    drawn = picture(Ladder((rung("one", 1, running=9, preemptible=4, protected=3, pending=2),)))
    assert '<rect class="protected" fill="url(#hatching)"' in drawn
    assert "4 preemptible · 3 protected until they have started and some time has passed · 2 kept · 2 pending" in drawn
