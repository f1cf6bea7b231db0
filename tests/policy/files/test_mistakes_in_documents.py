"""What is no policy, or not even YAML, and where in the file a mistake is shown: its place and its field."""

from tests.policy.builders import document, loaded, table
from webhook.policy.files.loading import load_texts

HEAD = "apiVersion: giveway.dev/v1alpha1\nkind: PriorityPolicy\nmetadata: {name: p}\nspec:\n"
POLICY = HEAD + "  rules:\n  - {name: d, defaultPriorityClass: standard}\n"


@table(
    "text, words",
    {
        "kind that is no text": ("kind: [x]\n", '"" is no kind of policy'),
        "a text": ("text\n", "found text"),
        "apiVersion": (POLICY.replace("v1alpha1", "v1"), 'did you mean "giveway.dev/v1alpha1"?'),
        "metadata": (POLICY.replace("{name: p}", "{nmae: p}"), 'did you mean "name"?'),
        "spec": (POLICY.replace("spec:", "sepc:"), 'did you mean "spec"?'),
        "status": (POLICY + "status: {}\n", 'unknown field "status"'),
        "tab": ("a: b\n\tc: d\n", "a tab where YAML wants spaces"),
        "indented less than its first line": ("  a: b\nc: d\n", "a document has ended: `---` is missing before this"),
        "two commas": ("a: [b,,]\n", "YAML: a value is missing before ,"),
        "alias to itself": ("a: &b [*b]\n", "alias *b refers to no anchor &b"),
    },
)
def test_documents(text, words):
    """What is no policy is told apart from what is a wrong one.

    More of them, with their whole texts, are in tests/admission/test_configmaps.py.
    """
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


@table(
    "spec, line, words",
    {
        "entry of a list": ("  rules:\n  - {name: a}\n   - {name: b}\n", 7, "does not begin in the column"),
        "field of a mapping": ("  rules:\n  - name: a\n   x: {}\n", 7, "does not begin in the column"),
        "indented too far": ("  enforcement: warn\n   rules: []\n", 6, 'a ":" cannot stand here'),
        "two colons": ("  a: b: c\n", 5, 'a text that holds ": " needs quotes'),
        "open list": ("  rules: [a, b\n", 6, '"," or "]" is missing before the end of the file'),
        "open mapping": ("  match: {a\n  rules: []\n", 6, '"," or "}" is missing before this'),
        "open quote": ('  rules: "abc\n', 6, "a quote is not closed"),
        "at sign": ("  rules: @x\n", 5, 'a text that begins with "@" needs quotes'),
        "tab": ("\trules: x\n", 5, "a tab where YAML wants spaces"),
        "no colon": ("  rules\n  match: {}\n", 6, 'a ":" '),
    },
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


@table(
    "written, place",
    {
        "plain": ("foo == 1", (8, 19)),
        "in quotes": ("'1 + 1 == foo'", (8, 29)),
        "in quotes, before what is escaped": ('"foo == \\"a\\""', (8, 20)),
        "after what is escaped: where it begins": ('"\\"a\\" == foo"', (8, 19)),
        "in a block": ("|\n      1 ==\n        foo", (10, 11)),
        "folded: where it begins": (">\n      1 ==\n      foo", (8, 19)),
    },
)
def test_place_of_a_cel_mistake(written, place):
    """A mistake in CEL has the line and column of the file, as far as YAML leaves them to be known."""
    found = loaded(f"rules:\n- name: r\n  validate:\n    expression: {written}\n    message: m").errors
    (one,) = [one for one in found if 'no variable or function "foo"' in one.message]
    assert (one.source.line, one.source.column) == place


def test_excerpts_of_odd_lines():
    """A caret stands below what is meant, also in long lines; controls are not shown."""
    odd = load_texts([("a.yaml", POLICY.replace("{name: p}", '{labels: {a: "b\u202ec"}, nmae: p}'))]).errors
    line, caret = next(one for one in odd if "nmae" in one.message).excerpt.splitlines()
    assert "\u202e" not in line
    assert line[caret.index("^") :].startswith("nmae")
    long = load_texts([("a.yaml", POLICY.replace("{name: p}", "{labels: {a: " + "b" * 500 + "}, nmae: p}"))]).errors
    line, caret = next(one for one in long if "nmae" in one.message).excerpt.splitlines()
    assert len(line) < 120
    assert line[caret.index("^") :].startswith("nmae")


@table(
    "text, fields",
    {
        "names and values": ("spec:\n  enforcment: warn\n  rules: []\n", ["spec.enforcment", "spec.rules"]),
        "a mapping as a whole, not its first field": ("spec:\n  enforcement: warn\n", ["spec"]),
        "entries of lists": (
            (
                "spec:\n  rules:\n  - name: a\n    reserve: {from: 9, to: 1}\n"
                "  - {name: b, priorityClasses: {deny: [5]}}\n"
            ),
            ["spec.rules[0].reserve.from", "spec.rules[1].priorityClasses.deny[0]"],
        ),
        "inside an expression": (
            (
                "spec:\n  rules:\n  - name: a\n    validate:\n      message: m\n      expression: |\n"
                "        true &&\n        foo\n"
            ),
            ["spec.rules[0].validate.expression"],
        ),
        "no mapping": ("spec: 5\n", ["spec"]),
        "an alias": ("spec: &a {rules: []}\nspce: *a\n", ["spec.rules", "spce"]),
        "what cannot be read has no fields": ("spec:\n  rules: [a\n", [""]),
    },
)
def test_the_field_of_a_finding(text, fields):
    """As kubectl names it."""
    found = load_texts([("p.yaml", HEAD.removesuffix("spec:\n") + text)]).findings
    assert [one.source.field for one in found] == fields
    assert all(f"({one.source.field})" in str(one) for one in found if one.source.field)


def test_the_other_place():
    """It is named and shown, too, in a file without a finding of its own."""
    rule = "rules: [{name: a, reserve: {from: 1, to: 5}}]"
    (found,) = load_texts([(f"{name}.yaml", document(rule, name=name)) for name in ("p", "q")]).findings
    assert "q.yaml:5:11: error: the range of q/a overlaps that of p/a" in str(found)
    assert f"p.yaml:5:11: note: p/a reserves 1 to 5 (spec.rules[0])\n    5 |   {rule}" in str(found)
