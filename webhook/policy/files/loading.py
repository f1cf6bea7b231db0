"""Loading a directory of policy files: everything in them that is wrong, at once, and the policies that are right."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import msgspec

from webhook.policy.files.consistency import KnownClasses, check_together
from webhook.policy.files.first_use import INSTEAD, Uses, use_once
from webhook.policy.files.schema import API_VERSION, DOCUMENTS, TEST_KIND
from webhook.policy.files.yamltree import LARGEST_FILE, LARGEST_SET, MOST_FILES, YamlError, documents
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.priority import PriorityPolicy
from webhook.policy.shapes.findings import Finding, PolicyError, Reader, Severity, TooMuchError
from webhook.policy.shapes.shapes import INVALID
from webhook.policy.shapes.yaml_nodes import SourcePosition, YamlMap, YamlNode, YamlScalar, kind, meaning

SUFFIXES = (".yaml", ".yml")
"""How the names of policy files end, and of those with their tests."""


class Loaded(msgspec.Struct, frozen=True):
    """The policies without errors, and what was found wrong anywhere."""

    policies: Policies
    findings: list[Finding]

    @property
    def errors(self) -> list[Finding]:
        """The findings that keep this set from being used."""
        return [finding for finding in self.findings if finding.severity is Severity.ERROR]


def load(directory: Path, known_classes: KnownClasses | None = None, uses: Uses = ()) -> Loaded:
    """Read the `*.yaml` and `*.yml` files directly in a directory, in the order of their names, or one file.

    With `known_classes`, names of PriorityClasses that are not among them are found, too. `uses` as in `use_once`.
    Nothing is raised for what is in them or for files that cannot be read: that is in the findings.
    """
    texts, findings = read_texts(directory)
    loaded = load_texts(texts, known_classes, uses=uses)
    return Loaded(loaded.policies, findings + loaded.findings)


def read_texts(directory: Path) -> tuple[list[tuple[str, str]], list[Finding]]:
    """The policy files of a directory, as pairs of path and text, and what keeps others from being read.

    Files are regular ones, also through links as in a ConfigMap mount, whose own `..data` entries are hidden by their
    dot.
    """
    texts: list[tuple[str, str]] = []
    findings: list[Finding] = []
    try:
        if directory.is_dir():
            files = [path for path in directory.iterdir() if path.suffix in SUFFIXES and not path.name.startswith(".")]
            paths = sorted(path for path in files if not path.is_dir())
        else:
            paths = [directory]
    except OSError as error:
        return [], [about(directory, f"cannot be read: {error.strerror or error}")]
    if not paths:
        findings.append(about(directory, "holds no *.yaml file: only the built-in rules hold", Severity.WARNING))
    for path in paths:
        try:
            text = _text(path)
        except OSError as error:
            text = about(path, f"cannot be read: {error.strerror or error}")
        if isinstance(text, Finding):
            findings.append(text)
        else:
            texts.append((str(path), text))
    return texts, findings


def _text(path: Path) -> str | Finding:
    """The text of a policy file, or why there is none: it is too large or not UTF-8. Raises OSError."""
    if path.exists() and not path.is_file():
        return about(path, "is no regular file")
    with path.open("rb") as file:
        data = file.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        return about(path, _too_large(path.stat().st_size))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        source = SourcePosition(str(path), before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1)
        text = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        return Finding(severity=Severity.ERROR, source=source, message=text)


def _too_large(size: int) -> str:
    return f"has {size} bytes; a policy file has at most {LARGEST_FILE}: split it"


def _too_many(files: int, size: int) -> str:
    """Why no more files are read; empty if they are."""
    if size > LARGEST_SET:
        return (
            f"with this file the policies have {size} bytes; a set has at most {LARGEST_SET}, because it is kept in a"
            " ConfigMap: shorten comments, or take policies out"
        )
    return f"a set has at most {MOST_FILES} policy files: join some" if files >= MOST_FILES else ""


def about(path: Path, message: str, severity: Severity = Severity.ERROR) -> Finding:
    """A finding about a file as a whole."""
    return Finding(severity=severity, source=SourcePosition(str(path)), message=message)


def load_or_raise(directory: Path) -> Policies:
    """The policies of a directory. Raises PolicyError with everything found when there is any error."""
    loaded = load(directory)
    if loaded.errors:
        raise PolicyError(loaded.findings)
    return loaded.policies


def load_texts(
    texts: list[tuple[str, str]],
    known_classes: KnownClasses | None = None,
    now: float | None = None,
    uses: Uses = (),
    seconds: float = math.inf,
) -> Loaded:
    """Read policy files given as pairs of name and text; `known_classes` and `uses` as in `load`.

    All of it is used once, as of `now` (seconds since the epoch; the clock's time if None). No file is begun after so
    many `seconds` of this thread.
    """
    end = time.thread_time() + seconds
    readers: dict[str, Reader] = {}
    read: list[PriorityPolicy | PreemptionPolicy] = []
    size, unread = 0, list[Finding]()
    for name, text in texts:
        own = len(text.encode(errors="surrogatepass"))
        size += own + len(name)
        wrong = _too_large(own) if own > LARGEST_FILE else _too_many(len(readers), size)
        if time.thread_time() > end:
            wrong = f"is not read: the files before it took more than {seconds:g} s; make them smaller or fewer"
        if wrong:
            unread.append(about(Path(name), wrong))
            break
        reader = readers[name] = Reader(name, text)
        try:
            empty = True
            for root in documents(text):
                empty = empty and isinstance(root, YamlScalar) and meaning(root) == "null"
                errors = reader.errors
                try:
                    policy = _document(root, reader)
                except TooMuchError:
                    raise
                except Exception as error:  # noqa: BLE001 - whoever wrote the document reads it, and no server ends by it
                    policy = INVALID
                    reader.error(root, f"this policy cannot be read: {type(error).__name__}: {error}; {INSTEAD}")
                if policy is not INVALID and reader.errors == errors:
                    read.append(policy)
            if empty:
                reader.at(Severity.WARNING, SourcePosition(name, 1, 1), "the file holds no policy")
        except YamlError as error:
            source = SourcePosition(name, error.line, error.column)
            reader.at(Severity.ERROR, source, f"YAML: {error.message}")
        except TooMuchError:
            wrong = "the aliases of this file make too much of it; write the values out"
            reader.at(Severity.ERROR, SourcePosition(name, 1, 1), wrong)
    policies = Policies(
        priority=tuple(policy for policy in read if isinstance(policy, PriorityPolicy)),
        preemption=tuple(policy for policy in read if isinstance(policy, PreemptionPolicy)),
    )
    check_together(policies, readers, known_classes)
    policies = use_once(policies, readers, time.time() if now is None else now, uses)
    return Loaded(policies, [finding for reader in readers.values() for finding in reader.findings] + unread)


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
        reader.error(name, f'"{text[:80]}" is no kind of policy{reader.nearest(text, DOCUMENTS)}')
    return INVALID
