"""PriorityClasses and Namespaces from YAML or JSON files: single objects, several documents, or a List."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from webhook.admission.context import Objects
from webhook.kube.objects import Namespace, PriorityClass

__all__ = ["ObjectsError", "objects_from", "read_objects"]

_TYPES: dict[str, type[PriorityClass | Namespace]] = {"PriorityClass": PriorityClass, "Namespace": Namespace}


class ObjectsError(Exception):
    """A file that cannot be read as Kubernetes objects; the text names it and what is wrong."""


def read_objects(files: Iterable[Path]) -> Objects:
    """The PriorityClasses and Namespaces of these files; other kinds are passed over. Raises ObjectsError."""
    documents: list[tuple[str, Any]] = []
    for file in files:
        try:
            content = file.read_bytes()
            parsed = (
                [msgspec.json.decode(content)]
                if file.suffix == ".json"
                else list(YAML(typ="safe", pure=True).load_all(content))
            )
        except (OSError, YAMLError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ObjectsError(f"{file}: {error}") from error
        documents += [(str(file), document) for document in parsed if document is not None]
    return objects_from(documents)


def objects_from(documents: Iterable[tuple[str, Any]]) -> Objects:
    """The same from parsed documents, each with the words by which an error names it."""
    found: dict[str, list[Any]] = {"PriorityClass": [], "Namespace": []}
    for where, document in documents:
        for kind, item in _flatten(where, document):
            if kind in found:
                try:
                    obj = msgspec.convert(item, _TYPES[kind])
                except msgspec.ValidationError as error:
                    raise ObjectsError(f"{where}: {kind}: {error}") from error
                if not obj.metadata.name:
                    raise ObjectsError(f"{where}: {kind}: metadata.name is missing")
                found[kind].append(obj)
    return Objects(found["PriorityClass"], found["Namespace"])


def _flatten(where: str, document: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        raise ObjectsError(f"{where}: not a Kubernetes object: `kind` is missing")
    kind: str = document["kind"]
    if kind == "List" or (kind.endswith("List") and isinstance(document.get("items"), list)):
        for item in document.get("items") or ():
            if isinstance(item, dict):
                item = {"kind": kind.removesuffix("List"), **item}  # noqa: PLW2901 - items of a typed list carry no kind
            yield from _flatten(where, item)
    else:
        yield kind, document
