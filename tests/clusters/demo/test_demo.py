"""What the demo shows: every recorded review, and a control plane on which `make demo` plays the scenarios."""

from __future__ import annotations

import io

import aiohttp
from rich.console import Console

from webhook.clusters.demo.recorded_reviews import recorded, show_reviews
from webhook.clusters.demo.scenario_show import _cluster


def test_the_demo_shows_every_recorded_review():
    """The demo's table has a row for each review, and says that all are as they must be."""
    stream = io.StringIO()
    assert show_reviews(Console(file=stream, width=1000)) is True
    text = stream.getvalue()
    assert sum(line.startswith((" allowed ", " patched ", " denied ")) for line in text.splitlines()) == len(recorded())
    assert "kubernetes/system-range" in text
    assert "WRONG" not in text


async def test_the_demo_comes_up(tmp_path):
    """Control plane, webhook and reconciler together; the reconciler may act, and the page is there."""
    async with (
        _cluster(tmp_path, io.BytesIO()) as (_, page),
        aiohttp.ClientSession() as session,
        session.get(page) as answer,
    ):
        assert answer.status == 200
