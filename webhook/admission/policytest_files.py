"""The files of PolicyTests: what a test may say, and where each stands."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from webhook.admission.review import Operation
from webhook.policy.files.sources import SUFFIXES
from webhook.policy.files.yaml_messages import problem_of
from webhook.policy.shapes.yaml_nodes import SourcePosition

_STEP = re.compile(r"\.([^.\[\]`]+)|\[(\d+)\]")


class TestFileError(Exception):
    """A test file that cannot be run: where that shows, and what is wrong."""

    __test__ = False

    def __init__(self, source: SourcePosition, problem: str) -> None:
        super().__init__(f"{source}: {problem}")


class _Strict(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Part of a test file: a field that nobody reads is a mistake of its author."""


class TestRequest(_Strict):
    """Who asks for what."""

    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    operation: Literal["CREATE", "UPDATE", "DELETE"] = "CREATE"
    user: str = "someone"
    groups: tuple[str, ...] = ("system:authenticated",)
    dry_run: bool = False


class Expect(_Strict):
    """What must become of it; what is left out is not looked at. An empty list of warnings allows none."""

    verdict: Literal["allow", "deny"]
    rule: str | None = None
    message: str | None = None
    patch: list[Operation] | None = None
    warnings: list[str] | None = None


class Case(_Strict):
    """One request and its expected end."""

    name: str
    request: TestRequest
    expect: Expect
    phase: Literal["mutate", "validate", "both"] = "both"


class _Spec(_Strict):
    policies: str
    cases: list[Case]
    objects: list[dict[str, Any]] = []
    now: str | None = None


class _Metadata(_Strict):
    name: str


class PolicyTest(_Strict):
    """One document of a test file."""

    api_version: Literal["giveway.dev/v1alpha1"]
    kind: Literal["PolicyTest"]
    metadata: _Metadata
    spec: _Spec


class FoundTest(NamedTuple):
    """A PolicyTest and where it stands: its file, and its document there."""

    file: Path
    document: Any
    test: PolicyTest

    def place(self, *path: str | int) -> SourcePosition:
        """Where a field of its spec stands."""
        return SourcePosition(str(self.file), *_place_of(self.document, ("spec", *path)))


def find(paths: Iterable[Path]) -> Iterator[FoundTest]:
    """All PolicyTests in these files and, at any depth, below these directories.

    Raises TestFileError, with the place, at the first that cannot be read.
    """
    for path in paths:
        if not path.exists():
            raise TestFileError(SourcePosition(str(path)), "no such file or directory")
        files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES) if path.is_dir() else [path]
        for file in files:
            yield from _tests_in(file)


def _tests_in(file: Path) -> Iterator[FoundTest]:
    reader = YAML(typ="safe", pure=True)
    try:
        documents = [
            (node, reader.constructor.construct_document(node)) for node in reader.compose_all(file.read_bytes())
        ]
    except MarkedYAMLError as error:
        line, column, problem = problem_of(error)
        raise TestFileError(SourcePosition(str(file), line, column), f"YAML: {problem}") from error
    except (OSError, YAMLError, UnicodeDecodeError) as error:
        raise TestFileError(SourcePosition(str(file)), str(error)) from error
    for node, document in documents:
        if not isinstance(document, dict) or document.get("kind") != "PolicyTest":
            continue
        try:
            test = msgspec.convert(document, PolicyTest)
        except msgspec.ValidationError as error:
            source = SourcePosition(str(file), *_place_of(node, _path_of(str(error))))
            raise TestFileError(source, str(error).replace("`$.", "`")) from error
        yield FoundTest(file, node, test)


def _path_of(error: str) -> list[str | int]:
    """The path that an error of msgspec names, such as `$.spec.cases[0]`; with the unknown field, if it is one."""
    where = re.search(r"`\$([^`]*)`$", error)
    path: list[str | int] = [name or int(number) for name, number in _STEP.findall(where[1] if where else "")]
    unknown = re.match(r"Object contains unknown field `([^`]+)`", error)
    return [*path, unknown[1]] if unknown else path


def _place_of(node: Any, path: Sequence[str | int]) -> tuple[int, int]:
    """Line and column, from 1, of what stands at a path in a document; of the nearest part that is there."""
    mark = node.start_mark
    for step in path:
        if isinstance(step, int):
            node = node.value[step]
            mark = node.start_mark
            continue
        pair = next((pair for pair in node.value if pair[0].value == step), None)
        if pair is None:
            break
        mark, node = pair[0].start_mark, pair[1]
    return mark.line + 1, mark.column + 1
