"""Every review that was recorded from a real API server, as the demo shows it."""

from __future__ import annotations

import io

from rich.console import Console

from webhook.clusters.demo.recorded_reviews import recorded, show_reviews


def test_the_demo_shows_every_recorded_review():
    """The demo's table has a row for each review, and says that all are as they must be."""
    stream = io.StringIO()
    assert show_reviews(Console(file=stream, width=1000)) is True
    text = stream.getvalue()
    assert sum(line.startswith((" allowed ", " patched ", " denied ")) for line in text.splitlines()) == len(recorded())
    assert "kubernetes/system-range" in text
    assert "WRONG" not in text
