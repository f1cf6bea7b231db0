"""Manifests mean what kubectl reads in them; a real kubectl is asked, too."""

import json
import subprocess
from io import StringIO

import pytest
import yaml

from tests.policy.builders import table
from tests.processor_time import within
from webhook.admission import kubectl_yaml
from webhook.admission.kubectl_yaml import Remark, read_yaml, write_yaml

HEAD = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
SCALARS = {
    **dict.fromkeys(["y", "Y", "yes", "Yes", "YES", "on", "ON", "true", "True", "!!bool yes", '!!bool "yes"'], True),
    **dict.fromkeys(["n", "N", "no", "No", "off", "Off", "false", "FALSE"], False),
    **dict.fromkeys(["~", "null", "Null", "NULL", "", "!!null ''"], None),
    **{text: text for text in ("=", "nO", "1e+400", "9" * 400, "9" * 5000, "1e", "_1", "190:20:30", "2001-01-01")},
    **{text: text for text in ("<<", "v1.0")},
    '"y"': "y",
    "'0777'": "0777",
    **dict.fromkeys(["1e+06", "1e6", "1000000.0"], 1000000),
    "1.": 1,
    ".5": 0.5,
    "-.5": -0.5,
    **dict.fromkeys(["-0.0", "-0"], 0),
    "1e-7": 1e-7,
    "1" + "0" * 300: 1e300,
    **dict.fromkeys(["0777", "0o777"], 511),
    "0_7": 7,
    "08": 8,
    **dict.fromkeys(["0x1F", "+0x1F"], 31),
    "0b11": 3,
    "-0b11": -3,
    "+5": 5,
    "1_000": 1000,
    "9007199254740993": 9007199254740993,
    "-9223372036854775808": -9223372036854775808,
    "9223372036854775808": 9223372036854775808.0,
    "1e18": 10**18,
    "1e21": 1e21,
    "!!str 123": "123",
    "!!int '12'": 12,
    "!!float 3": 3,
    "!!timestamp 2001-01-01": "2001-01-01",
    "!mine 12": "12",
}
"""What stands after a key, and what it is in JSON."""

MAPPINGS = {
    "{123: a, true: b, 1.5: c, 0777: d, 1e3: e, 1e22: f, .inf: g}": {
        "123": "a",
        "true": "b",
        "1.5": "c",
        "511": "d",
        "1000": "e",
        "1e+22": "f",
        ".inf": "g",
    },
    "{y: 1}": {"true": 1},
    "{a: 1, <<: {a: 2}}": {"a": 2},
    "{<<: {a: 2}, a: 1}": {"a": 1},
    "{<<: [{a: 2}, {a: 3, b: 3}], c: 1}": {"a": 2, "b": 3, "c": 1},
    "{'<<': {a: 1}}": {"<<": {"a": 1}},
    "[&a {b: 1}, *a, {<<: *a, c: 2}]": [{"b": 1}, {"b": 1}, {"b": 1, "c": 2}],
    "!!set {a, b}": {"a": None, "b": None},
}
"""Mappings and lists, and what they are in JSON."""

REFUSED = {
    "x: {~: 1}": "the name of a field is text",
    "x: {[1]: 1}": "the name of a field is text",
    "x: {<<: 5}": "`<<` takes a mapping",
    "x: *a": "refers to no anchor",
    "x: &a {b: *a}": "refers to no anchor",
    "x:\n\t5": "needs quotes",
    "x:\n  a: 1\n\tb: 2": "a tab where YAML wants spaces",
    "x: [1": '"," or "]" is missing',
    "x: \x01": "control characters",
    "x:\n  a: 1\n b: 2": "does not begin in the column",
}
"""What kubectl refuses, and part of what is said of it."""


def values(text: str | bytes) -> list:
    documents = list(read_yaml(text if isinstance(text, bytes) else text.encode()))
    assert not [document.problem for document in documents if document.problem]
    return [document.value for document in documents]


def kubectl(text: str | bytes) -> tuple[int, list]:
    """The exit code of a real kubectl, and the objects that it reads, without the annotation that it was asked for."""
    command = ["kubectl", "annotate", "--local", "-f", "-", "-o", "json", "a=b"]
    body = text if isinstance(text, bytes) else text.encode()
    ran = subprocess.run(command, check=False, input=body, capture_output=True)
    objects, at, output = [], 0, ran.stdout.decode().strip()
    decoder = json.JSONDecoder(parse_int=lambda text: int(text) if int(text) < 1 << 63 else float(text))
    while at < len(output):
        obj, at = decoder.raw_decode(output, at)
        del obj["metadata"]["annotations"]
        objects.append(obj)
        at += len(output[at:]) - len(output[at:].lstrip())
    return ran.returncode, objects


@pytest.mark.parametrize(("text", "value"), (SCALARS | MAPPINGS).items())
def test_a_value_is_what_it_is_to_kubectl(text, value):
    """Numbers without a point if they are whole, YAML 1.1's words for true and false, and names that are text."""
    [found] = values(f"x: {text}\ny: z\n")
    assert found == {"x": value, "true": "z"}
    assert type(found["x"]) is type(value)


@pytest.mark.parametrize(("text", "words"), REFUSED.items())
def test_what_kubectl_refuses_is_told_with_its_place(text, words, monkeypatch):
    """A document that cannot be read is one problem, on a line of the file; no parser lets it pass."""
    [first, broken, last] = read_yaml(f"{HEAD}---\n{text}\n---\n{HEAD}".encode())
    assert (first.problem, last.problem, last.line) == (None, None, 6 + text.count("\n") + 1)
    assert words in broken.problem.text
    monkeypatch.setattr(kubectl_yaml, "_Loader", yaml.SafeLoader)
    [other] = read_yaml(f"{HEAD}{text}\n".encode())
    assert other.problem is not None
    assert 4 <= broken.problem.line <= 6 + text.count("\n")


@pytest.mark.kubectl
def test_a_real_kubectl_reads_the_same():
    """Every row of the tables above, in one file; what differs between its versions is not among them."""
    rows = SCALARS | MAPPINGS
    text = HEAD + "data:\n" + "".join(f"  r{number}: {row}\n" for number, row in enumerate(rows))
    code, [read] = kubectl(text)
    assert code == 0
    assert read["data"] == {f"r{number}": value for number, value in enumerate(rows.values())}


@pytest.mark.kubectl
@pytest.mark.parametrize("text", REFUSED)
def test_a_real_kubectl_refuses_the_same(text):
    """So that no row of that table is ours alone."""
    assert kubectl(f"{HEAD}{text}\n")[0] == 1


DOCUMENTS = {
    "two": (f"{HEAD}---\n{HEAD}", 2),
    "comments after the marks": (f"--- # first\n{HEAD}--- # second\n{HEAD}", 2),
    "empty ones": (f"---\n---\n# nothing\n---\n{HEAD}---\n", 1),
    "an end mark": (f"{HEAD}...\n", 1),
    "CRLF": (HEAD.replace("\n", "\r\n") + "x: |\r\n  a\r\n---\r\n" + HEAD, 2),
    "BOM": (f"\ufeff{HEAD}---\n\ufeff{HEAD}", 2),
    "UTF-16": (HEAD.encode("utf-16"), 1),
    "not UTF-8": (f"{HEAD}x: \xff\n".encode("latin-1"), 1),
    "tabs between words": (f"x:\t5\n{HEAD}y: 1\t# tab\n", 1),
    "JSON": ('{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "b": 1e6, "c": 1.0}', 1),
    "a row of JSON": ('{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}\n' * 3, 3),
    "nothing": ("", 0),
    "a comment": ("# a comment\n", 0),
}


@table("text, count", DOCUMENTS)
def test_documents(text, count):
    """Each is one, however the file says so."""
    assert [value["kind"] for value in values(text)] == ["ConfigMap"] * count


def test_without_libyaml_the_parser_in_python_reads(monkeypatch):
    """PyYAML may have been built without it: slower, and stricter about tabs."""
    monkeypatch.setattr(kubectl_yaml, "_Loader", yaml.SafeLoader)
    rows = "".join(f"r{number}: {text}\n" for number, text in enumerate(SCALARS))
    assert values(f"{HEAD}---\n{rows}")[1] == {f"r{number}": value for number, value in enumerate(SCALARS.values())}


@pytest.mark.kubectl
@table("text, count", DOCUMENTS)
def test_a_real_kubectl_finds_the_same_documents(text, count):
    """Each with the same content."""
    code, objects = kubectl(text)
    read = values(text)
    for obj in read:
        obj["metadata"] = {"name": "a"}
    assert (code, objects, len(read)) == (0, read, count)


@table(
    "text, place",
    {
        "a mapping": ("a: 1\nb: {c: 1, c: 2}\n", (2, 11, "c")),
        "after the mark": ("a: 1\n---\n1: x\n'1': y\n", (4, 1, "1")),
        "JSON": ('{"a": 1, "b": [{"c": 1, "c": 2}]}', (1, 25, "c")),
        "a row of JSON": ('\n{"x": 1}\n{"a": 1, "a": 2}', (3, 10, "a")),
    },
)
def test_of_a_key_that_stands_twice_the_last_one_holds(text, place):
    """A warning says where; what a merge brings stands once."""
    [warning] = [warning for document in read_yaml(text.encode()) for warning in document.warnings]
    line, column, key = place
    assert warning == Remark(line, column, f"`{key}` stands twice in one mapping; the last one holds, as for kubectl")
    [merged] = read_yaml(b"a: {<<: {b: 1}, b: 2}")
    assert not merged.warnings


def test_the_last_one_holds_and_what_stands_at_a_path_has_a_place():
    """As JSON has it, and go-yaml if it is not strict; what is not there has the place of what is nearest."""
    for text in ("x: 1\n---\na: {b: 1, b: 2}", '\n{"a": {"b": 1, "b": 2}}'):
        document = list(read_yaml(text.encode()))[-1]
        assert document.value == {"a": {"b": 2}}
    [document] = list(read_yaml(b"x: 1\n---\na:\n- b: 1\n- {c: 2, d: 3}\n"))[1:]
    places = {(): (3, 1), ("a",): (3, 1), ("a", 1): (5, 3), ("a", 1, "d"): (5, 10), ("a", 1, "e", "f"): (5, 3)}
    assert {path: document.place(*path) for path in places} == places


@table("text", {"an escaped pair": r'{"a": "\ud83d\ude00", "b": 1}', "a control character": '{"a": "\x7f", "b": 1}'})
def test_json_that_no_yaml_parser_reads_has_one_place(text):
    """Its beginning: YAML has neither such escapes nor such characters, and other writers of JSON write them."""
    [document] = read_yaml(text.encode())
    assert (document.problem, document.place("b")) == (None, (1, 1))


def test_many_places_in_a_document_take_no_longer_than_one(monkeypatch):
    """A test of many cases that fail has as many places."""
    texts = []
    monkeypatch.setattr(
        yaml, "compose", lambda text, loader, compose=yaml.compose: texts.append(text) or compose(text, loader)
    )
    [document] = read_yaml("".join(f"r{number}: 1\n" for number in range(50)).encode())
    assert [document.place(f"r{number}") for number in range(50)] == [(line, 1) for line in range(1, 51)]
    assert len(texts) == 1


def test_what_follows_the_end_of_a_document_is_told():
    """Kubectl drops it without a word."""
    [document] = read_yaml(f"{HEAD}...\n{HEAD}".encode())
    assert document.value["kind"] == "ConfigMap"
    assert document.problem == Remark(5, 1, "a document has ended: `---` is missing before this")


def test_aliases_are_bounded(monkeypatch):
    """A few lines cannot stand for millions of values."""
    monkeypatch.setattr(kubectl_yaml, "MOST_VALUES", 100)
    text = "a: &a [1,2,3,4,5,6,7,8,9]\nb: &b [*a,*a,*a,*a,*a]\nc: [*b,*b]\n"
    [document] = read_yaml(text.encode())
    assert "more than 100 values, each as often as aliases name it" in document.problem.text
    assert document.problem.line == 3


@pytest.mark.parametrize("text", ["[" * 5000, "a:\n" + "".join(f"{' ' * n}- \n" for n in range(1500)), '{"a":' * 5000])
def test_depth_is_bounded(text):
    """Too many levels are a problem of that document."""
    [document] = read_yaml(text.encode())
    assert document.problem is not None


def test_what_is_written_is_read_as_it_was_meant():
    """A namespace may be called `no`, and a label `0777`; the same part twice is written twice."""
    texts = [text.strip("'\"") for text in SCALARS if "!" not in text] + [
        "a\n  b\n",
        "a\x85b",
        "\u2028",
        "a: b",
        "-",
        "#",
        "",
    ]
    value = {"list": texts, "map": dict.fromkeys(texts, texts)}
    stream = StringIO()
    write_yaml([value], stream)
    assert values(stream.getvalue()) == [value]
    assert "&" not in stream.getvalue()


@pytest.mark.slow
def test_large_files_are_read_quickly():
    """70 000 lines, as the definitions of an operator have, take well below the three seconds of a whole review."""
    rows = "".join(f"  field{number}:\n    type: string\n    description: what it says\n" for number in range(500))
    text = f"{HEAD}data:\n{rows}---\n" * 47
    assert text.count("\n") > 70_000
    with within(2.0):
        assert len(values(text)) == 47
