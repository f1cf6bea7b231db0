"""Directories and files of policies: what is read, what is refused, and how quickly."""

import os
from pathlib import Path

import pytest

from tests.policy.builders import document, rules, table
from tests.processor_time import within
from webhook.policy.files.loading import load_or_raise, load_texts, texts_in
from webhook.policy.files.yamltree import LARGEST_FILE
from webhook.policy.shapes.findings import PolicyError

POLICY = """\
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {name: %s}
spec: {rules: [{name: d, defaultPriorityClass: standard%s}]}
"""


def write(directory: Path, name: str, text: str | bytes) -> Path:
    """A file."""
    path = directory / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def messages(directory):
    """What is found, as one text each."""
    return [str(one) for one in load_texts(*texts_in(directory)).findings]


def test_only_yaml_directly_in_the_directory_is_read(tmp_path):
    """Tests and examples in sub-folders, other files and hidden ones are left alone; files go by their names."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "odd.yaml").mkdir()
    for name in ("b.yaml", "a.yml", "tests/c.yaml", ".d.yaml", "e.json", "f.yaml~"):
        write(tmp_path, name, POLICY % (name[0].strip(".") or "x", name[0].strip(".")))
    loaded = load_texts(*texts_in(tmp_path))
    assert [policy.name for policy in loaded.policies.priority] == ["a", "b"]
    assert [Path(policy.source.file).name for policy in loaded.policies.priority] == ["a.yml", "b.yaml"]


def test_config_map_mount(tmp_path):
    """In a mounted ConfigMap files are links through `..data`; each is read once."""
    real = tmp_path / "..2026_01_01"
    real.mkdir()
    write(real, "a.yaml", POLICY % ("a", ""))
    (tmp_path / "..data").symlink_to(real.name)
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    loaded = load_texts(*texts_in(tmp_path))
    assert loaded.findings == []
    assert [policy.name for policy in loaded.policies.priority] == ["a"]


def test_dangling_link(tmp_path):
    """A link that leads nowhere is an error of its own; the other files are read."""
    (tmp_path / "a.yaml").symlink_to("nowhere")
    write(tmp_path, "b.yaml", POLICY % ("b", ""))
    (text,) = messages(tmp_path)
    assert text == f"{tmp_path}/a.yaml: error: cannot be read: No such file or directory"
    assert len(load_texts(*texts_in(tmp_path)).policies.priority) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_unreadable_file(tmp_path):
    """A file that may not be read is an error."""
    write(tmp_path, "a.yaml", POLICY % ("a", "")).chmod(0)
    assert "Permission denied" in messages(tmp_path)[0]


@pytest.mark.parametrize("given", ["", "a.yaml"], ids=["in a directory", "by its name"])
def test_pipe_does_not_hang(tmp_path, given):
    """What is no regular file is not opened."""
    os.mkfifo(tmp_path / "a.yaml")
    assert "is no regular file" in messages(tmp_path / given)[0]


UTF_16, WINDOWS = "a: b\n".encode("utf-16"), (POLICY % ("a", "")).replace("\n", "\r\n")
READ = {
    "one file": ({"bad.yaml": "x", "a.yaml": POLICY % ("a", "")}, "a.yaml", []),
    "no such file": ({}, "nope", ["nope: error: cannot be read: No such file or directory"]),
    "an empty directory": ({}, "", [": warning: holds no *.yaml file: only the built-in rules hold"]),
    "a byte": ({"a.yaml": b"a: b\nc: \xff\n"}, "", ["/a.yaml:2:4: error: byte 0xff is not UTF-8"]),
    "UTF-16": ({"a.yaml": UTF_16}, "", ["/a.yaml:1:1: error: byte 0xff is not UTF-8"]),
    "cut off": ({"a.yaml": b"a: \xc3"}, "", ["/a.yaml:1:4: error: byte 0xc3 is not UTF-8"]),
    "a file of Windows": ({"a.yaml": b"\xef\xbb\xbf" + WINDOWS.encode()}, "", []),
    "a mistake in one": ({"a.yaml": WINDOWS.replace("standard", "standard!")}, "", ["/a.yaml:4:"]),
}


@table("files, given, expected", READ)
def test_what_is_read(tmp_path, files, given, expected):
    """A directory or a file; the place of the first byte that is no UTF-8 is told, and an error is raised on demand."""
    for name, data in files.items():
        write(tmp_path, name, data)
    found = load_texts(*texts_in(tmp_path / given))
    texts = [str(one).replace(str(tmp_path), "").removeprefix("/" if given else "") for one in found.findings]
    assert len(texts) == len(expected)
    assert all(text.startswith(words) for text, words in zip(texts, expected, strict=True))
    if found.errors:
        with pytest.raises(PolicyError):
            load_or_raise(tmp_path / given)
    else:
        assert load_or_raise(tmp_path / given) == found.policies


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(20)
)
WIDE = "&r {name: r, priorityClasses: {allow: [" + "a, " * 3000 + "a]}}"


@table(
    "text, words",
    {
        "alias bomb": (BOMB, "aliases of this file make too much"),
        "alias bomb in a policy": (
            POLICY.splitlines()[0]
            + "\nkind: PriorityPolicy\nmetadata: {name: a}\nspec: {rules: ["
            + WIDE
            + ", *r" * 150
            + "]}\n",
            "aliases of this file make too much",
        ),
        "10 MB": ("a" * 10_000_000, f"has 10000000 bytes; a policy file has at most {LARGEST_FILE}"),
        "deep flow": ("[" * (LARGEST_FILE - 1), "nested more than 32"),
        "deep block": ("- " * (LARGEST_FILE // 2), "nested more than 32"),
        "deep mappings": ("{a," * (LARGEST_FILE // 3), "nested more than 32"),
        "deep keys": ("? " * (LARGEST_FILE // 2), "nested more than 32"),
        "many values": ("[" + "a," * (LARGEST_FILE // 2 - 2) + "]", "more than 10000 values"),
        "many documents": ("--- a\n" * (LARGEST_FILE // 6), "more findings in this file"),
        "many keys": ("a:\n" * (LARGEST_FILE // 3), "more than 10000 values"),
        "open quote": ("'" + "a\n" * (LARGEST_FILE // 2 - 1), "a quote is not closed"),
        "one long text": ("a b " * (LARGEST_FILE // 4), "expected a policy"),
        "tags": ("!" * (LARGEST_FILE - 1), "tags such as"),
        "open tag": ("!<" + "x" * (LARGEST_FILE - 3), ""),
        "many lines": ("\n" * (LARGEST_FILE - 1) + "x", "expected a policy"),
    },
)
def test_hostile_files_are_refused_quickly(tmp_path, text, words):
    """Whatever is in a file, it is refused within a second."""
    write(tmp_path, "a.yaml", text)
    with within(1):
        errors = load_texts(*texts_in(tmp_path)).errors
    assert any(words in one.message for one in errors)
    assert all(len(str(one)) < 1000 for one in errors)


def test_findings_are_not_endless(tmp_path):
    """A file full of mistakes shows the first ones and how many there are besides."""
    write(tmp_path, "a.yaml", "".join(f"---\nkind: k{n}\n" for n in range(1000)))
    found = load_texts(*texts_in(tmp_path)).findings
    assert len(found) == 201
    assert found[-1].message == "800 more findings in this file are not shown"


def listed(pattern: str, count: int) -> str:
    """So many names in flow style."""
    return "[" + ", ".join(pattern.replace("N", str(number)) for number in range(count)) + "]"


ALIKE = "'*aaaaaaaaaaaaaaaaaaaa{}N'"


@table(
    "text",
    {
        "exceptions from rules that are not there": document(
            rules(
                *(f"{{name: r{number}abc, priorityClasses: {{deny: [x]}}}}" for number in range(700)),
                exceptions="[{match: {namespaces: [a]}, reason: r, owner: o, until: 2030-01-01, rules: "
                + listed("rNabd", 3000)
                + "}]",
            )
        ),
        "the same long globs in many rights": document(
            "rules:\n- name: a\n  reserve:\n    from: 1\n    to: 2\n    use:\n"
            f"    - subjects: &all {listed('{kind: User, name: ' + 's*' * 500 + 'N}', 100)}\n"
            + "    - subjects: *all\n"
            * 80
        ),
        "globs in two policies": "---\n".join(
            document(f"preemptors: {{priorityClasses: {listed(ALIKE.format(name), 800)}}}", "PreemptionPolicy", name)
            for name in "pq"
        ),
        "defaults beside lists of globs": document(
            rules(
                f"{{name: a, priorityClasses: &all {{deny: {listed('xN*', 100)}}}}}",
                *(f"{{name: b{number}, priorityClasses: *all}}" for number in range(450)),
                *(f"{{name: c{number}, defaultPriorityClass: z}}" for number in range(450)),
            )
        ),
        "many classes in two policies": "---\n".join(
            document(f"preemptors: {{priorityClasses: {listed(name + 'N', 2500)}}}", "PreemptionPolicy", name)
            for name in ("x", "y")
        ),
    },
)
def test_the_work_for_one_file_is_bounded(text):
    """A file within the limits costs no minutes, however many of its names have to be compared with others."""
    assert len(text) < LARGEST_FILE
    with within(10.0):
        load_texts([("a.yaml", text)])


def test_the_work_for_a_set_can_be_bounded():
    """After so many seconds no further file is read, and that is said of the first one that is not."""
    texts = [(f"{name}.yaml", POLICY % (name, name)) for name in "abc"]
    assert not any("is not read" in one.message for one in load_texts(texts, seconds=60.0).errors)
    began = load_texts(texts, seconds=-1.0)
    assert [(str(one.source), one.message) for one in began.errors] == [
        ("a.yaml", "is not read: the files before it took more than -1 s; make them smaller or fewer")
    ]
