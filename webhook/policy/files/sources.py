"""Where policies come from: a source gives texts with names; whoever chooses a policy set need not know which it is.

A source is read at once, from the disk or from what a watch has shown last. Policies as custom resources would be one
more class here: each object a text, named as `kubectl` names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from webhook.policy.files.yamltree import LARGEST_FILE
from webhook.policy.shapes.findings import Finding, Severity
from webhook.policy.shapes.yaml_nodes import SourcePosition

SUFFIXES = (".yaml", ".yml")
"""How the names of policy files end, and of those with their tests."""


class PolicyTexts(NamedTuple):
    """Policies as texts, each with the name by which findings call it, and what keeps others from being read."""

    texts: list[tuple[str, str]]
    findings: list[Finding]


class PolicySource(Protocol):
    """Gives policies as texts. `str(source)` is its name in messages."""

    def read(self) -> PolicyTexts:
        """The policies as they are now. May block on a disk, never on the network; nothing is raised."""
        ...


class DirectorySource:
    """The `*.yaml` and `*.yml` files directly in a directory, in the order of their names, or one file.

    Files are regular ones, also through links as in a ConfigMap mount, whose own `..data` entries are hidden by their
    dot.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __str__(self) -> str:
        return str(self._directory)

    def read(self) -> PolicyTexts:
        """The files as they are now, by their paths."""
        result, directory = PolicyTexts([], []), self._directory
        try:
            paths = sorted(filter(_is_policy_file, directory.iterdir())) if directory.is_dir() else [directory]
        except OSError as error:
            return PolicyTexts([], [about(directory, f"cannot be read: {error.strerror or error}")])
        if not paths:
            nothing = "holds no *.yaml file: only the built-in rules hold"
            result.findings.append(about(directory, nothing, Severity.WARNING))
        for path in paths:
            text = _text(path)
            if isinstance(text, str):
                result.texts.append((str(path), text))
            else:
                result.findings.append(text)
        return result


class ConfigMapSource:
    """The policy files in the data of a ConfigMap; `name` is how messages call it.

    Whatever else is in the data is no policy file, also what no API server has checked yet. `binary` are the keys of
    `binaryData`, in which kubectl puts a file that is not UTF-8.
    """

    def __init__(self, name: str, data: Mapping[str, Any], binary: Iterable[str] = ()) -> None:
        self._name, self._binary = name, [key for key in binary if key.endswith(SUFFIXES)]
        self._files = {key: text for key, text in data.items() if key.endswith(SUFFIXES) and isinstance(text, str)}

    def __str__(self) -> str:
        return self._name

    def read(self) -> PolicyTexts:
        """The files in the order of their keys, called `name/key`."""
        unread = "this is binaryData, in which a file is that is not UTF-8; save the file as UTF-8"
        findings = [about(Path(self._name, key), unread) for key in self._binary]
        return PolicyTexts([(f"{self._name}/{key}", text) for key, text in sorted(self._files.items())], findings)


def about(path: Path, message: str, severity: Severity = Severity.ERROR) -> Finding:
    """A finding about a file as a whole."""
    return Finding(severity=severity, source=SourcePosition(str(path)), message=message)


def too_large(size: int) -> str:
    """Why a file of so many bytes is not read."""
    return f"has {size} bytes; a policy file has at most {LARGEST_FILE}: split it"


def _is_policy_file(path: Path) -> bool:
    return path.suffix in SUFFIXES and not path.name.startswith(".") and not path.is_dir()


def _text(path: Path) -> str | Finding:
    """The text of a policy file, or why there is none."""
    if path.exists() and not path.is_file():
        return about(path, "is no regular file")
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
        return about(path, too_large(path.stat().st_size)) if len(data) > LARGEST_FILE else data.decode("utf-8-sig")
    except OSError as error:
        return about(path, f"cannot be read: {error.strerror or error}")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        source = SourcePosition(str(path), before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1)
        text = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        return Finding(severity=Severity.ERROR, source=source, message=text)
