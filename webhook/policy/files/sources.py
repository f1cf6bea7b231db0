"""Where policies come from: a source gives texts with names; whoever chooses a policy set need not know which it is.

A source is read at once, from the disk or from what a watch has shown last. Policies as custom resources would be one
more function here: each object a text, named as `kubectl` names it.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from webhook.policy.files.yamltree import LARGEST_FILE
from webhook.policy.shapes.findings import Finding, Severity
from webhook.policy.shapes.yaml_nodes import SourcePosition

SUFFIXES = (".yaml", ".yml")
"""How the names of policy files end, and of those with their tests."""


class PolicyTexts(NamedTuple):
    """Policies as texts, each with the name by which findings call it, and what keeps others from being read."""

    texts: list[tuple[str, str]]
    findings: list[Finding]


class PolicySource(NamedTuple):
    """What gives policies as texts, and its name in messages.

    `read` gives them as they are now. It may block on a disk, never on the network; nothing is raised.
    """

    name: str
    read: Callable[[], PolicyTexts]


def texts_in(directory: Path) -> PolicyTexts:
    """The `*.yaml` and `*.yml` files directly in a directory, in the order of their names, or one file, by their paths.

    Files are regular ones, also through links as in a ConfigMap mount, whose own `..data` entries are hidden by their
    dot.
    """
    result = PolicyTexts([], [])
    try:
        entries = sorted(directory.iterdir()) if directory.is_dir() else ()
        files = [path for path in entries if path.suffix in SUFFIXES and path.name[0] != "." and not path.is_dir()]
        paths = files if directory.is_dir() else [directory]
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


def texts_of(name: str, data: Mapping[str, Any], binary: Iterable[str] = ()) -> PolicyTexts:
    """The policy files in the data of a ConfigMap that messages call by this name, in the order of their keys.

    Whatever else is in the data is no policy file, also what no API server has checked yet. `binary` are the keys of
    `binaryData`, in which kubectl puts a file that is not UTF-8.
    """
    unread = "this is binaryData, in which a file is that is not UTF-8; save the file as UTF-8"
    files = sorted((key, text) for key, text in data.items() if key.endswith(SUFFIXES) and isinstance(text, str))
    findings = [about(Path(name, key), unread) for key in binary if key.endswith(SUFFIXES)]
    return PolicyTexts([(f"{name}/{key}", text) for key, text in files], findings)


def about(path: Path, message: str, severity: Severity = Severity.ERROR) -> Finding:
    """A finding about a file as a whole."""
    return Finding(severity=severity, source=SourcePosition(str(path)), message=message)


def too_large(size: int) -> str:
    """Why a file of so many bytes is not read."""
    return f"has {size} bytes; a policy file has at most {LARGEST_FILE}: split it"


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
