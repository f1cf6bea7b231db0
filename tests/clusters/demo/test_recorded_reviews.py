"""Every review that was recorded from a real API server, answered over TLS."""

from __future__ import annotations

import io
from pathlib import Path

import jsonpatch
from rich.console import Console

from tests.admission.builders import patch_of
from webhook.clusters.demo.recorded_reviews import Expected, recorded, recorded_objects, show_reviews

POLICIES = Path(__file__).parents[3] / "policies"
ROWS = recorded()


async def test_every_recorded_review_is_answered_as_it_must_be(start):
    """What a real API server sends gets what was worked out by hand, and what comes out needs no further patch."""
    async with start(policies=POLICIES, objects=recorded_objects()) as running:
        for row in ROWS:
            status, answer = await running.post(row.path, row.review)
            denied = answer.get("auditAnnotations", {}).get("denied-by")
            patch = patch_of(answer)
            verdict = "denied" if not answer["allowed"] else "patched" if patch else "allowed"
            got = Expected(verdict, denied.split(",") if denied else [], patch, answer.get("warnings", []))
            assert (status, answer["uid"]) == (200, row.review["request"]["uid"]), row.name
            assert got == row.expect, f"{row.plugin} {row.name}: {answer}"
            if patch:
                request = row.review["request"]
                again = {**request, "object": jsonpatch.apply_patch(request["object"], patch)}
                _, answer = await running.post(row.path, {**row.review, "request": again})
                assert patch_of(answer) == [], row.name
                _, answer = await running.post("/validate", {**row.review, "request": again})
                assert "builtin/" not in answer.get("auditAnnotations", {}).get("denied-by", ""), row.name


def test_the_demo_shows_every_recorded_review():
    """The demo's table has a row for each review, and says that all are as they must be."""
    stream = io.StringIO()
    assert show_reviews(Console(file=stream, width=1000)) is True
    text = stream.getvalue()
    assert sum(line.startswith((" allowed ", " patched ", " denied ")) for line in text.splitlines()) == len(ROWS)
    assert "kubernetes/system-range" in text
    assert "WRONG" not in text
