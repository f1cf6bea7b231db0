"""Texts from requests, kept and shown within bounds."""

import ast
from pathlib import Path

import pytest

import webhook
from webhook.kube.bounded import BoundedCache, Newest, bounded, bounded_cache

ROOT = Path(webhook.__file__).parent
UNBOUNDED = {
    "webhook/admission/kubectl_yaml.py": "by texts in manifests that a command reads; no server reads any",
    "webhook/inspection/checks/budgets.py": "by kinds of pods, for one run of a command",
    "webhook/inspection/checks/classes.py": "by kinds of pods in a range, for one run of a command",
    "webhook/kube/instants.py": "by whole seconds, and by texts that are instants: others raise, and no error is kept",
    "webhook/kube/quantity.py": "by texts that are quantities: others raise, and no error is kept",
    "webhook/policy/cel/cost.py": "by powers of two",
    "webhook/preemption/devices/device_selector.py": "without arguments",
    "webhook/policy/cel/fields.py": "without arguments",
    "webhook/policy/cel/program.py": "without arguments",
    "webhook/policy/model/schedule.py": "by the schedules of the policies",
    "webhook/preemption/filters/volumes.py": "by rows, for one decision",
    "webhook/serving/review_handler.py": "by the status of an answer and the second",
}
"""Where lru_cache or cache may be used, and by what its entries are kept: never by what a request says."""


def test_no_more_entries_than_it_may_have():
    """What was kept first goes first."""
    asked = []
    cache = BoundedCache(lambda key: asked.append(key) or key.upper(), 2, 10)
    assert [cache(key) for key in "abacab"] == list("ABACAB")
    assert asked == ["a", "b", "c", "a", "b"]
    assert len(cache) == 2


def test_a_long_key_is_answered_and_not_kept():
    """So nobody fills the memory by names of a quarter of a megabyte."""
    cache = BoundedCache(len, 4096, 253)
    assert [cache("n" * 253), cache("n" * 254), cache("n" * 250_000)] == [253, 254, 250_000]
    assert len(cache) == 1


def test_every_argument_counts():
    """Texts within tuples count like others."""

    @bounded_cache(100, 10)
    def joined(name: str, pairs: tuple[tuple[str, str], ...]) -> str:
        return name + "".join(key + value for key, value in pairs)

    assert joined("a", (("b", "c"),)) == "abc"
    assert joined("a", (("b", "c" * 9),)) == "ab" + "c" * 9
    assert len(joined) == 1


def test_the_newest_entries_stay():
    """What is set again or asked for is the newest; the oldest goes first; what is there is not made again."""
    newest = Newest(2)
    newest["a"], newest["b"] = 1, 2
    newest["a"] = 3
    newest["c"] = 4
    assert list(newest.items()) == [("a", 3), ("c", 4)]
    assert newest.made("a", int, 9) == 3
    assert newest.made("d", int, 9) == 9
    assert list(newest.items()) == [("a", 3), ("d", 9)]
    assert newest.setdefault("e", 5) == 5
    assert list(newest) == ["d", "e"]


@pytest.mark.parametrize(
    ("text", "most", "shown"), [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("", 3, "")], ids=["fits", "cut", "empty"]
)
def test_a_text_that_is_shown(text, most, shown):
    """A text that is too long ends with a sign of it."""
    assert bounded(text, most) == shown


def test_whoever_keeps_results_says_by_what():
    """A new cache is a bounded one, or is named here with the reason why no request chooses its keys."""
    found = set()
    for path in ROOT.rglob("*.py"):
        imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        names = {alias.name for node in imports if node.module == "functools" for alias in node.names}
        if names & {"lru_cache", "cache"}:
            found.add(str(path.relative_to(ROOT.parent)))
    # The embedded control plane is for trying and testing
    assert {name for name in found if not name.startswith("webhook/clusters/embedded/")} == set(UNBOUNDED)
