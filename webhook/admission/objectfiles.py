"""Kubernetes objects from YAML or JSON files: single objects, several documents, or a List."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from webhook.admission.context import Objects
from webhook.admission.kubectl_yaml import read_yaml
from webhook.kube.objects.cluster_scoped import Namespace, PriorityClass
from webhook.policy.evaluation.request import part

_TYPES: dict[str, tuple[str, type[PriorityClass | Namespace]]] = {
    "PriorityClass": ("scheduling.k8s.io", PriorityClass),
    "Namespace": ("", Namespace),
}
"""The group and the type of a kind."""
_SUFFIXES = (".yaml", ".yml", ".json")


class ObjectsError(Exception):
    """A file that cannot be read as Kubernetes objects; the text names it and what is wrong."""


class ObjectDocument(NamedTuple):
    """One object as it stands in a file, or what cannot be read as one.

    `where` names the file, and `line` is where its document begins. What is no object has neither kind nor content.
    """

    where: str
    kind: str
    content: dict[str, Any]
    line: int = 0
    problem: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """Its API group, empty for the core one."""
        version = self.content.get("apiVersion")
        return version.rpartition("/")[0] if isinstance(version, str) else ""

    @property
    def metadata(self) -> dict[str, Any]:
        """Its metadata; empty if it has none."""
        return part(self.content, "metadata")

    @property
    def place(self) -> str:
        """`FILE:LINE`, or the file alone if it has no lines."""
        return f"{self.where}:{self.line}" if self.line else self.where


def read_documents(paths: Iterable[Path], stdin: bytes = b"") -> list[ObjectDocument]:
    """The objects in these files and, at any depth, below these directories; `-` is `stdin`.

    What is no object, such as the values of a chart, is a problem in a file that was named, and passed over in one that
    lies in a directory that was. Raises ObjectsError if there is nothing at all: what makes the files has failed.
    """
    named = list(paths)
    documents: list[ObjectDocument] = []
    for path in named:
        if str(path) == "-":
            documents += _read("standard input", lambda: stdin)
        elif path.is_dir():
            for file in sorted(path.rglob("*")):
                if file.suffix in _SUFFIXES and file.is_file():
                    documents += _read(str(file), file.read_bytes, only_objects=True)
        else:
            documents += _read(str(path), path.read_bytes)
    if named and not documents:
        places = ", ".join("standard input" if str(path) == "-" else str(path) for path in named)
        raise ObjectsError(f"{places}: no Kubernetes object is in it")
    return documents


def readable(documents: list[ObjectDocument], tell: Callable[[str], None] = lambda _: None) -> list[ObjectDocument]:
    """These documents; `tell` gets their warnings. Raises ObjectsError with all problems."""
    for document in documents:
        for warning in document.warnings:
            tell(warning)
    if problems := [document.problem for document in documents if document.problem]:
        raise ObjectsError("\n".join(problems))
    return documents


def read_objects(files: Iterable[Path], tell: Callable[[str], None]) -> Objects:
    """The PriorityClasses and Namespaces of these files. Raises ObjectsError."""
    return objects_of(readable(read_documents(files), tell))


def objects_of(documents: Iterable[ObjectDocument]) -> Objects:
    """The PriorityClasses and Namespaces among these. Raises ObjectsError."""
    objects = list(map(typed, documents))
    classes = [obj for obj in objects if isinstance(obj, PriorityClass)]
    return Objects(classes, [obj for obj in objects if isinstance(obj, Namespace)])


def typed(document: ObjectDocument) -> PriorityClass | Namespace | None:
    """A document's PriorityClass or Namespace; None for another kind. Raises ObjectsError."""
    group, type_ = _TYPES.get(document.kind, ("", None))
    if type_ is None or document.group not in {"", group}:
        return None
    try:
        obj = msgspec.convert(document.content, type_)
    except msgspec.ValidationError as error:
        raise ObjectsError(f"{document.place}: {document.kind}: {error}") from error
    if not obj.metadata.name:
        raise ObjectsError(f"{document.place}: {document.kind}: metadata.name is missing")
    return obj


def documents_in(where: str, value: Any, line: int = 0) -> Iterator[ObjectDocument]:
    """The object that a value is, or those of a List."""
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        nothing = ObjectDocument(where, "", {}, line)
        yield nothing._replace(problem=f"{nothing.place}: not a Kubernetes object: `kind` is missing")
        return
    kind: str = value["kind"]
    if kind != "List" and not (kind.endswith("List") and isinstance(value.get("items"), list)):
        yield ObjectDocument(where, kind, value, line)
        return
    # Items of a typed list carry neither kind nor version.
    head = {"kind": kind.removesuffix("List")}
    if kind != "List" and value.get("apiVersion"):
        head["apiVersion"] = value["apiVersion"]
    for item in value.get("items") or ():
        alone = {**head, **item} if isinstance(item, dict) else item
        yield from documents_in(where, alone, line)


def _read(where: str, content_of: Callable[[], bytes], *, only_objects: bool = False) -> Iterator[ObjectDocument]:
    """The documents of a file; with `only_objects` what is read and is no object is passed over."""
    try:
        content = content_of()
    except OSError as error:
        yield ObjectDocument(where, "", {}, problem=f"{where}: cannot be read: {error.strerror or error}")
        return
    hint = "; render a chart first, as with helm template" if b"{{" in content else ""
    for read in read_yaml(content):
        value = read.value
        if read.problem is not None:
            yield ObjectDocument(where, "", {}, read.line, f"{where}:{read.problem}{hint}")
        is_object = isinstance(value, dict) and isinstance(value.get("kind"), str) and "apiVersion" in value
        if value is None or (only_objects and not is_object):
            continue
        warnings = tuple(f"{where}:{warning}" for warning in read.warnings)
        for document in documents_in(where, value, read.line):
            yield document._replace(warnings=warnings)
            warnings = ()
