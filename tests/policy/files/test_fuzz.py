"""Any text gives findings or policies, never a crash; what loads also runs."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.policy.builders import create, define, deployment, pod, update
from webhook.policy.evaluation.engine import Engine
from webhook.policy.files.loading import load_texts

pytestmark = pytest.mark.slow

SHIPPED = [path.read_text() for path in sorted(Path(__file__).parents[3].glob("policies/**/*.yaml"))]
SIGNS = ["a", "yes", "010", "~", ": ", "- ", "\n", "\n  ", "&a ", "*a", "!x ", "|\n", "---\n", *"[]{}:'\">#\t?,%"]
LINES = ["apiVersion: giveway.dev/v1alpha1\n", "kind: PriorityPolicy\n", "kind: PreemptionPolicy\n"]
FIELDS = ["metadata: {name: a}\n", "spec:", "rules:", "match:", "reserve: {from: 1, to: 2}", "expression: 'a'"]
PIECES = st.sampled_from(SIGNS) | st.sampled_from([*LINES, *FIELDS])


def survive(text):
    """Load the text; every finding can be shown, and what was loaded judges requests, explained or not."""
    loaded = load_texts([("a.yaml", text)])
    lines = text.splitlines()
    for finding in loaded.findings:
        assert str(finding).startswith("a.yaml:")
        assert 1 <= finding.source.line <= len(lines) + 1
    engine = Engine(loaded.policies)
    for request in (create(pod("x"), priority=5), update(pod(), pod()), deployment(pod("x")), define("x", 5)):
        assert engine.judge(request, []) == engine.judge(request)


@given(st.text())
@example("\u0085a: b\u2028c: [")
@example("\r\ra: \x0b[")
@example("\ufeff\ufeffkind: x")
def test_any_text(text):
    """Text that knows nothing of YAML."""
    survive(text)


@given(st.lists(PIECES, max_size=40).map("".join))
def test_text_of_yaml_pieces(text):
    """Text that looks like YAML and like policies."""
    survive(text)


@given(st.sampled_from(SHIPPED), st.data())
def test_shipped_files_with_changes(text, data):
    """A real policy file with pieces cut out, doubled and put in."""
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 40)))
        text = text[:start] + data.draw(PIECES | st.just(text[start:end] * 2) | st.just("")) + text[end:]
    survive(text)


KEYS = "metadata spec labels annotations template value priority priorityClassName name jobTemplate"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*KEYS.split(), "godel.bytedance.com/can-be-preempted"]), inner, max_size=4)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(["metadata", "spec", "value"]), JSON)
JUDGING = Engine(
    load_texts([(str(number), text) for number, text in enumerate(SHIPPED) if "PolicyTest" not in text]).policies
)


@given(OBJECTS, st.none() | OBJECTS, st.sampled_from(["pods", "deployments", "cronjobs", "priorityclasses", "other"]))
def test_any_object(new, old, resource):
    """An object of any shape is judged, explained or not: refusing its shape is the API server's business."""
    request = create(new, resource=resource, operation="CREATE" if old is None else "UPDATE", old_object=old)
    assert JUDGING.judge(request, []) == JUDGING.judge(request)
    JUDGING.default_priority_class(request)
    JUDGING.annotations_to_copy(request)
