"""Where policies come from: a source gives texts with names; whoever chooses a policy set need not know which it is.

A source is read at once, from the disk or from what a watch has shown last. Policies as custom resources would be one
more class here: each object a text, named as `kubectl` names it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from webhook.policy.files.first_use import Uses
from webhook.policy.files.loading import SUFFIXES, Loaded, about, load_texts, read_texts
from webhook.policy.shapes.findings import Finding


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
    """The policy files of a directory, or one file."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __str__(self) -> str:
        return str(self._directory)

    def read(self) -> PolicyTexts:
        """The files as they are now, by their paths."""
        return PolicyTexts(*read_texts(self._directory))


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


def load_source(source: PolicySource, uses: Uses = (), seconds: float = math.inf) -> Loaded:
    """The policies of a source, and all that is wrong with them; `uses` and `seconds` as in `load_texts`."""
    texts, findings = source.read()
    loaded = load_texts(texts, uses=uses, seconds=seconds)
    return Loaded(loaded.policies, findings + loaded.findings)
