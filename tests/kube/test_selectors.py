"""Selectors: label selectors, node selectors and their text form."""

import pytest

from webhook.kube.objects.meta import LabelSelector, Requirement
from webhook.kube.objects.placement import NodeSelector, NodeSelectorTerm
from webhook.kube.selectors import SelectorError, label_matcher, node_matcher, parse_selector

LABELS = {"app": "web", "tier": "front", "size": "5", "empty": "", "padded": "0" * 40 + "5"}


def row(key, operator, *values):
    """One requirement."""
    return Requirement(key=key, operator=operator, values=list(values) or None)


def matches(*rows, labels=LABELS, **match_labels):
    """Whether a label selector of these selects the labels."""
    return label_matcher(LabelSelector(match_labels=match_labels, match_expressions=list(rows)))(labels)


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        (row("app", "In", "web", "db"), True),
        (row("app", "In", "db"), False),
        (row("none", "In", "db"), False),
        (row("app", "NotIn", "db"), True),
        (row("app", "NotIn", "web"), False),
        (row("none", "NotIn", "web"), True),
        (row("app", "Exists"), True),
        (row("none", "Exists"), False),
        (row("empty", "Exists"), True),
        (row("app", "DoesNotExist"), False),
        (row("none", "DoesNotExist"), True),
    ],
)
def test_label_requirements(requirement, expected):
    """Each operator, also where the key is absent."""
    assert matches(requirement) is expected


def test_everything_named_must_hold():
    """What matchLabels and matchExpressions ask for holds together."""
    assert matches(row("tier", "Exists"), app="web")
    assert not matches(row("tier", "DoesNotExist"), app="web")
    assert not matches(row("tier", "Exists"), app="db")


def test_absent_and_empty_selectors():
    """No selector selects nothing, an empty one everything."""
    assert not label_matcher(None)({})
    assert label_matcher(LabelSelector())({})


@pytest.mark.parametrize(
    "requirement",
    [
        row("a", "In"),
        row("a", "NotIn"),
        row("a", "Exists", "b"),
        row("a", "DoesNotExist", "b"),
        row("a", "Gt", "5"),
        row("a", "Near", "b"),
        row("a", "", "b"),
    ],
)
def test_label_requirements_that_kubernetes_refuses(requirement):
    """What the API server would refuse is refused, with the key."""
    with pytest.raises(SelectorError, match="'a'"):
        matches(requirement)


def node_matches(*terms, labels=LABELS, name="n1"):
    """Whether a node selector of these terms selects a node."""
    return node_matcher(NodeSelector(node_selector_terms=list(terms)))(name, labels)


def labelled(*rows):
    """A term over labels."""
    return NodeSelectorTerm(match_expressions=list(rows))


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        (row("size", "Gt", "4"), True),
        (row("size", "Gt", "5"), False),
        (row("size", "Lt", "6"), True),
        (row("size", "Lt", "-6"), False),
        (row("size", "Gt", "-6"), False),
        (row("size", "In", "5", "no value"), False),
        (row("size", "NotIn", "-6"), False),
        (row("app", "Gt", "4"), False),
        (row("none", "Lt", "4"), False),
        (row("size", "Gt", "x"), False),
        (row("size", "Lt", "9223372036854775807"), True),
        (row("size", "Lt", "9223372036854775808"), False),
        (row("size", "Gt", "0" * 40 + "4"), True),
        (row("size", "Lt", "0" * 40 + "5"), False),
        (row("size", "Lt", "1" + "0" * 40), False),
        (row("padded", "Gt", "4"), True),
        (row("padded", "Gt", "5"), False),
        (row("size", "Gt", "1", "2"), False),
    ],
)
def test_numbers_in_node_requirements(requirement, expected):
    """Gt and Lt need one int64 on both sides; a term that cannot be parsed selects nothing.

    That is one with a value that no label can have, a negative number for one.
    """
    assert node_matches(labelled(requirement)) is expected


def test_terms_are_alternatives():
    """One term that holds suffices; within a term everything must hold."""
    web, db = row("app", "In", "web"), row("app", "In", "db")
    assert node_matches(labelled(db), labelled(web))
    assert not node_matches(labelled(db, web))


def test_empty_terms_select_nothing():
    """No selector selects every node, but a term without requirements, or no term at all, none."""
    assert node_matcher(None)("n1", {})
    assert not node_matches(NodeSelectorTerm())
    assert not node_matches()


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        (row("metadata.name", "In", "n1"), True),
        (row("metadata.name", "In", "n2"), False),
        (row("metadata.name", "NotIn", "n2"), True),
        (row("metadata.name", "In", "n1", "n2"), False),
        (row("metadata.uid", "In", "n1"), False),
    ],
)
def test_fields_of_nodes(requirement, expected):
    """A term over fields knows the node's name and one value."""
    assert node_matches(NodeSelectorTerm(match_fields=[requirement])) is expected


def test_labels_and_fields_of_one_term_hold_together():
    """A term may ask for both."""
    by_name = [row("metadata.name", "In", "n1")]
    assert node_matches(NodeSelectorTerm(match_expressions=[row("app", "Exists")], match_fields=by_name))
    assert not node_matches(NodeSelectorTerm(match_expressions=[row("none", "Exists")], match_fields=by_name))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("app=web", True),
        ("app==web,tier=front", True),
        ("app = web , tier = front", True),
        ("app!=web", False),
        ("none!=web", True),
        ("app in (db, web)", True),
        ("app in (db)", False),
        ("app notin (db)", True),
        ("none notin (db)", True),
        ("app", True),
        ("none", False),
        ("!none", True),
        ("! app", False),
        ("empty=", True),
        ("size>4", True),
        ("size<4", False),
        ("app in (a,b),tier", False),
    ],
)
def test_text_form(text, expected):
    """The form that queries use."""
    assert parse_selector(text)(LABELS) is expected


@pytest.mark.parametrize("text", ["a=b=c", "!a=b", "a in b", "a in (b", "=b", "a b", "a>x", "a in (b) c", "(a)"])
def test_text_that_is_no_selector(text):
    """What does not parse is refused with its part."""
    with pytest.raises(SelectorError):
        parse_selector(text)
