"""Kubernetes objects from YAML or JSON files: single objects, several documents, or a List."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from webhook.admission.context import Objects
from webhook.kube.objects import Namespace, PriorityClass

__all__ = ["ObjectDocument", "ObjectsError", "objects_from", "read_documents", "read_objects"]

_TYPES: dict[str, type[PriorityClass | Namespace]] = {"PriorityClass": PriorityClass, "Namespace": Namespace}
_SUFFIXES = (".yaml", ".yml", ".json")


class ObjectsError(Exception):
    """A file that cannot be read as Kubernetes objects; the text names it and what is wrong."""


class ObjectDocument(NamedTuple):
    """One object as it stands in a file; `where` is how messages name the file."""

    where: str
    kind: str
    content: dict[str, Any]

    @property
    def group(self) -> str:
        """Its API group, empty for the core one."""
        version = self.content.get("apiVersion")
        return version.rpartition("/")[0] if isinstance(version, str) else ""


def read_documents(paths: Iterable[Path], stdin: bytes = b"") -> list[ObjectDocument]:
    """The objects in these files and, at any depth, below these directories; `-` is `stdin`. Raises ObjectsError.

    What is no object, such as the values of a chart, is an error in a file that was named, and passed over in one that
    lies in a directory that was.
    """
    documents: list[ObjectDocument] = []
    for path in paths:
        if str(path) == "-":
            documents += _objects_in("standard input", _parsed("standard input", stdin))
        elif path.is_dir():
            for file in sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file()):
                content = _parsed(str(file), _content(file))
                documents += _objects_in(str(file), [obj for obj in content if _is_object(obj)])
        else:
            documents += _objects_in(str(path), _parsed(str(path), _content(path)))
    return documents


def read_objects(files: Iterable[Path]) -> Objects:
    """The PriorityClasses and Namespaces of these files; other kinds are passed over. Raises ObjectsError."""
    return objects_from((document.where, document.content) for document in read_documents(files))


def objects_from(documents: Iterable[tuple[str, Any]]) -> Objects:
    """The same from parsed documents, each with the words by which an error names it."""
    by_kind: dict[str, list[Any]] = {"PriorityClass": [], "Namespace": []}
    for where, document in documents:
        for kind, item in _flatten(where, document):
            if kind in by_kind:
                try:
                    obj = msgspec.convert(item, _TYPES[kind])
                except msgspec.ValidationError as error:
                    raise ObjectsError(f"{where}: {kind}: {error}") from error
                if not obj.metadata.name:
                    raise ObjectsError(f"{where}: {kind}: metadata.name is missing")
                by_kind[kind].append(obj)
    return Objects(by_kind["PriorityClass"], by_kind["Namespace"])


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ObjectsError(f"{file}: cannot be read: {error.strerror or error}") from error


def _parsed(where: str, content: bytes) -> list[Any]:
    """The documents of a file that hold anything. JSON is read as such, for that is far quicker."""
    try:
        if content.lstrip()[:1] in (b"{", b"["):
            try:
                return [msgspec.json.decode(content)]
            except msgspec.DecodeError:
                if where.endswith(".json"):
                    raise
        return [document for document in YAML(typ="safe", pure=True).load_all(content) if document is not None]
    except (YAMLError, msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        hint = "; render a chart first, as with helm template" if b"{{" in content else ""
        raise ObjectsError(f"{where}: {error}{hint}") from error


def _objects_in(where: str, documents: Iterable[Any]) -> Iterator[ObjectDocument]:
    for document in documents:
        for kind, item in _flatten(where, document):
            yield ObjectDocument(where, kind, item)


def _is_object(document: Any) -> bool:
    return isinstance(document, dict) and isinstance(document.get("kind"), str) and "apiVersion" in document


def _flatten(where: str, document: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        raise ObjectsError(f"{where}: not a Kubernetes object: `kind` is missing")
    kind: str = document["kind"]
    if kind == "List" or (kind.endswith("List") and isinstance(document.get("items"), list)):
        version = document.get("apiVersion") if kind != "List" else None
        for item in document.get("items") or ():
            if isinstance(item, dict):
                # Items of a typed list carry neither kind nor version.
                head = {"kind": kind.removesuffix("List"), **({"apiVersion": version} if version else {})}
                item = {**head, **item}  # noqa: PLW2901 - the item as it would stand alone
            yield from _flatten(where, item)
    else:
        yield kind, document
