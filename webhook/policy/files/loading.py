"""Loading a directory of policy files: everything in them that is wrong, at once, and the policies that are right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from webhook.policy.files.consistency import check_together
from webhook.policy.files.document_kinds import API_VERSION, DOCUMENTS, TEST_KIND
from webhook.policy.files.yamltree import LARGEST_FILE, YamlError, documents
from webhook.policy.model import Policies, PreemptionPolicy, PriorityPolicy, SourcePosition
from webhook.policy.shapes.findings import Finding, PolicyError, Reader, Severity, TooMuchError, nearest
from webhook.policy.shapes.nodes import YamlMap, YamlNode, YamlScalar, kind, meaning
from webhook.policy.shapes.shapes import INVALID

__all__ = ["Loaded", "PolicyError", "load", "load_or_raise", "load_texts", "read_texts"]

_SUFFIXES = (".yaml", ".yml")


class Loaded(msgspec.Struct, frozen=True):
    """The policies without errors, and what was found wrong anywhere."""

    policies: Policies
    findings: list[Finding]

    @property
    def errors(self) -> list[Finding]:
        """The findings that keep this set from being used."""
        return [finding for finding in self.findings if finding.severity is Severity.ERROR]


def load(directory: Path) -> Loaded:
    """Read the `*.yaml` and `*.yml` files directly in a directory, in the order of their names, or one file.

    Nothing is raised for what is in them or for files that cannot be read: that is in the findings.
    """
    texts, findings = read_texts(directory)
    loaded = load_texts(texts)
    return Loaded(loaded.policies, findings + loaded.findings)


def read_texts(directory: Path) -> tuple[list[tuple[str, str]], list[Finding]]:
    """The policy files of a directory, as pairs of path and text, and what keeps others from being read."""
    texts: list[tuple[str, str]] = []
    findings: list[Finding] = []
    try:
        paths = _files(directory)
    except OSError as error:
        return [], [_about(directory, f"cannot be read: {error.strerror or error}")]
    if not paths:
        findings.append(_about(directory, "holds no *.yaml file: only the built-in rules hold", Severity.WARNING))
    for path in paths:
        try:
            texts.append((str(path), _text(path)))
        except OSError as error:
            findings.append(_about(path, f"cannot be read: {error.strerror or error}"))
        except _UnreadableError as error:
            findings.append(error.finding)
    return texts, findings


def load_or_raise(directory: Path) -> Policies:
    """The policies of a directory. Raises PolicyError with everything found when there is any error."""
    loaded = load(directory)
    if loaded.errors:
        raise PolicyError(loaded.findings)
    return loaded.policies


def load_texts(texts: list[tuple[str, str]]) -> Loaded:
    """Read policy files given as pairs of name and text."""
    readers: dict[str, Reader] = {}
    priority: list[PriorityPolicy] = []
    preemption: list[PreemptionPolicy] = []
    for name, text in texts:
        reader = readers[name] = Reader(name, text)
        for policy in _policies(text, reader):
            if isinstance(policy, PriorityPolicy):
                priority.append(policy)
            else:
                preemption.append(policy)
    policies = Policies(priority=tuple(priority), preemption=tuple(preemption))
    check_together(policies, readers)
    return Loaded(policies, [finding for reader in readers.values() for finding in reader.findings])


class _UnreadableError(Exception):
    """A file that is no text of a policy file."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


def _files(directory: Path) -> list[Path]:
    """Regular files, also through links as in a ConfigMap mount, whose own `..data` entries are hidden by their dot."""
    if not directory.is_dir():
        with directory.open("rb"):
            return [directory]
    paths = (path for path in directory.iterdir() if path.suffix in _SUFFIXES and not path.name.startswith("."))
    return sorted(path for path in paths if not path.is_dir())


def _text(path: Path) -> str:
    """The text of a policy file. Raises _UnreadableError for one that is too large or not UTF-8."""
    if path.exists() and not path.is_file():
        raise _UnreadableError(_about(path, "is no regular file"))
    with path.open("rb") as file:
        data = file.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        size = path.stat().st_size
        text = f"has {size} bytes; a policy file has at most {LARGEST_FILE}: split it"
        raise _UnreadableError(_about(path, text))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        source = SourcePosition(str(path), before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1)
        text = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise _UnreadableError(Finding(severity=Severity.ERROR, source=source, message=text)) from error


def _about(path: Path, message: str, severity: Severity = Severity.ERROR) -> Finding:
    return Finding(severity=severity, source=SourcePosition(str(path)), message=message)


def _policies(text: str, reader: Reader) -> Iterator[Any]:
    """The policies of one file that are free of errors."""
    try:
        for root in documents(text):
            errors = reader.errors
            policy = _document(root, reader)
            if policy is not INVALID and reader.errors == errors:
                yield policy
    except YamlError as error:
        reader.at(Severity.ERROR, error.line, error.column, f"YAML: {error.message}")
    except TooMuchError:
        reader.at(Severity.ERROR, 1, 1, "the aliases of this file make too much of it; write the values out")


def _document(root: YamlNode, reader: Reader) -> Any:
    """The policy of one document by the fields of its kind; INVALID for anything that is not a policy."""
    if isinstance(root, YamlScalar) and meaning(root) == "null":
        return INVALID
    if not isinstance(root, YamlMap):
        reader.error(root, f"expected a policy (a mapping with apiVersion, kind, metadata, spec), found {kind(root)}")
        return INVALID
    name = next((value for key, value in root.pairs if isinstance(key, YamlScalar) and key.text == "kind"), None)
    if name is None:
        reader.error(root, f'a policy needs "kind": {" or ".join(DOCUMENTS)} (apiVersion: {API_VERSION})')
        return INVALID
    text = name.text if isinstance(name, YamlScalar) else ""
    if text in DOCUMENTS:
        return DOCUMENTS[text].read(root, reader)
    if text == TEST_KIND:
        reader.error(name, f"{TEST_KIND} documents lie in a sub-folder such as tests/, not beside the policies")
    else:
        reader.error(name, f'"{text[:80]}" is no kind of policy{nearest(text, DOCUMENTS)}')
    return INVALID
