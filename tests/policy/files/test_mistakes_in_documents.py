"""What is no policy, or not even YAML, and where in the file a mistake is shown."""

import pytest

from tests.policy.builders import loaded
from webhook.policy.files.loading import load_texts

HEAD = "apiVersion: giveway.dev/v1alpha1\nkind: PriorityPolicy\nmetadata: {name: p}\nspec:\n"
POLICY = HEAD + "  rules:\n  - {name: d, defaultPriorityClass: standard}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("a: b\n", 'needs "kind"', id="no kind"),
        pytest.param("kind: PriorityPolcy\n", 'did you mean "PriorityPolicy"?', id="misspelt kind"),
        pytest.param("kind: PolicyTest\n", "lie in a sub-folder such as tests/", id="a test"),
        pytest.param("kind: [x]\n", '"" is no kind of policy', id="kind that is no text"),
        pytest.param("- a\n", "expected a policy (a mapping", id="a list"),
        pytest.param("text\n", "found text", id="a text"),
        pytest.param(POLICY.replace("v1alpha1", "v1"), 'did you mean "giveway.dev/v1alpha1"?', id="apiVersion"),
        pytest.param(POLICY.replace("{name: p}", "{nmae: p}"), 'did you mean "name"?', id="metadata"),
        pytest.param(POLICY.replace("spec:", "sepc:"), 'did you mean "spec"?', id="spec"),
        pytest.param(POLICY + "status: {}\n", 'unknown field "status"', id="status"),
        pytest.param(POLICY.replace("p}", "builtin}"), "the name of the built-in rules", id="reserved name"),
        pytest.param("a: b\n\tc: d\n", "a tab where YAML wants spaces", id="tab"),
        pytest.param("a: [\n", "YAML: a value is missing before the end of the file", id="unclosed"),
        pytest.param("a: [b,,]\n", "YAML: a value is missing before ,", id="two commas"),
        pytest.param("a: *b\n", "alias *b refers to no anchor &b", id="alias"),
        pytest.param("a: &b [*b]\n", "alias *b refers to no anchor &b", id="alias to itself"),
        pytest.param("a: !!python/object x\n", "tags such as", id="tag"),
        pytest.param("%YAML 1.1\n---\na: b\n", "directives are not read", id="directive"),
        pytest.param("a: \x00\n", "control character #x0000", id="control character"),
    ],
)
def test_documents(text, words):
    """What is no policy is told apart from what is a wrong one."""
    assert any(words in one.message for one in load_texts([("p.yaml", text)]).errors)


def test_everything_at_once():
    """All mistakes of all documents and files are told, also after a document that is wrong."""
    bad = POLICY.replace("standard", "STANDARD")
    found = load_texts([("a.yaml", bad + "---\n" + bad + "---\n" + POLICY), ("b.yaml", bad)])
    assert [str(one.source) for one in found.errors] == ["a.yaml:6:37", "a.yaml:13:37", "b.yaml:6:37"]
    assert [policy.source.line for policy in found.policies.priority] == [15]


def test_documents_before_a_syntax_error_are_read():
    """A file is read as far as it goes."""
    found = load_texts([("a.yaml", POLICY + "---\na: [\n")])
    assert len(found.policies.priority) == 1
    assert [one.source.line for one in found.errors] == [9]


@pytest.mark.parametrize(
    ("spec", "line", "words"),
    [
        pytest.param(
            "  rules:\n  - {name: a}\n   - {name: b}\n", 7, "does not begin in the column", id="entry of a list"
        ),
        pytest.param("  rules:\n  - name: a\n   x: {}\n", 7, "does not begin in the column", id="field of a mapping"),
        pytest.param("  enforcement: warn\n   rules: []\n", 6, 'a ":" cannot stand here', id="indented too far"),
        pytest.param("  a: b: c\n", 5, 'a text that holds ": " needs quotes', id="two colons"),
        pytest.param("  rules: [a, b\n", 6, '"," or "]" is missing before the end of the file', id="open list"),
        pytest.param("  match: {a\n  rules: []\n", 6, '"," or "}" is missing before this', id="open mapping"),
        pytest.param('  rules: "abc\n', 6, "a quote is not closed", id="open quote"),
        pytest.param("  rules: @x\n", 5, 'a text that begins with "@" needs quotes', id="at sign"),
        pytest.param("\trules: x\n", 5, "a tab where YAML wants spaces", id="tab"),
        pytest.param("  rules\n  match: {}\n", 6, 'a ":" ', id="no colon"),
    ],
)
def test_yaml_that_cannot_be_read(spec, line, words):
    """What the parser says is told in words for people, without its block ends and tokens."""
    (found,) = load_texts([("p.yaml", HEAD + spec)]).errors
    assert (found.source.line, found.message.startswith("YAML: ")) == (line, True)
    assert words in found.message
    assert not {"<block", "token", "flow"} & set(found.message.split())


def test_empty_documents_are_no_mistake():
    """Comments and separators beside policies make no finding; a file without any policy does."""
    assert load_texts([("a.yaml", "# nothing\n---\n---\n" + POLICY)]).findings == []
    found = load_texts([("a.yaml", ""), ("b.yaml", "# nothing\n---\n")]).findings
    assert [str(one).splitlines()[0] for one in found] == [
        "a.yaml:1:1: warning: the file holds no policy",
        "b.yaml:1:1: warning: the file holds no policy",
    ]


@pytest.mark.parametrize(
    ("written", "place"),
    [
        pytest.param("foo == 1", (8, 19), id="plain"),
        pytest.param("'1 + 1 == foo'", (8, 29), id="in quotes"),
        pytest.param('"foo == \\"a\\""', (8, 20), id="in quotes, before what is escaped"),
        pytest.param('"\\"a\\" == foo"', (8, 19), id="after what is escaped: where it begins"),
        pytest.param("|\n      1 ==\n        foo", (10, 11), id="in a block"),
        pytest.param(">\n      1 ==\n      foo", (8, 19), id="folded: where it begins"),
    ],
)
def test_place_of_a_cel_mistake(written, place):
    """A mistake in CEL has the line and column of the file, as far as YAML leaves them to be known."""
    found = loaded(f"rules:\n- name: r\n  validate:\n    expression: {written}\n    message: m").errors
    (one,) = [one for one in found if 'no variable or function "foo"' in one.message]
    assert (one.source.line, one.source.column) == place


def test_excerpts_of_wide_and_odd_lines():
    """Carets stand below what is meant, also after wide characters and in long lines; controls are not shown."""
    wide = load_texts([("a.yaml", POLICY.replace("{name: p}", '{labels: {a: "日本\u202e語"}, nmae: p}'))]).errors
    found = next(one for one in wide if "nmae" in one.message)
    line, caret = found.excerpt.splitlines()
    assert "\u202e" not in line
    assert caret.index("^") == line.index("nmae") + 3
    long = load_texts([("a.yaml", POLICY.replace("{name: p}", "{labels: {a: " + "b" * 500 + "}, nmae: p}"))]).errors
    line, caret = next(one for one in long if "nmae" in one.message).excerpt.splitlines()
    assert len(line) < 120
    assert line[caret.index("^") :].startswith("nmae")
