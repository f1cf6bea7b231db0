"""Declarative tests beside the policies: given objects and a request, what must become of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from webhook.admission.context import Context
from webhook.admission.mutating import apply, escape
from webhook.admission.objectfiles import ObjectsError, objects_from
from webhook.admission.review import Answer, Operation
from webhook.admission.webhook import Phase, review
from webhook.kube.instants import InstantError, epoch
from webhook.kube.pods import WORKLOADS
from webhook.policy.evaluation.engine import Engine
from webhook.policy.files.loading import PolicyError, load_or_raise
from webhook.policy.model import GIVEN

__all__ = ["Case", "CaseResult", "PolicyTest", "TestFileError", "find", "run"]

API_VERSION = "giveway.dev/v1alpha1"
_RESOURCES = {workload.kind: key for key, workload in WORKLOADS.items()} | {
    "Pod": ("", "pods"),
    "PriorityClass": ("scheduling.k8s.io", "priorityclasses"),
}


class TestFileError(Exception):
    """A test file that cannot be run; the text names it and what is wrong."""

    __test__ = False


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


class CaseResult(msgspec.Struct, kw_only=True):
    """One case that ran: `failures` says what was expected and what came instead; empty is a pass."""

    file: Path
    test: str
    case: str
    verdict: str
    failures: list[str]
    seconds: float


def find(paths: Iterable[Path]) -> Iterator[tuple[Path, PolicyTest]]:
    """All PolicyTests in these files and, at any depth, below these directories. Raises TestFileError."""
    for path in paths:
        if not path.exists():
            raise TestFileError(f"{path}: no such file or directory")
        files = (
            sorted(file for file in path.rglob("*") if file.suffix in {".yaml", ".yml"}) if path.is_dir() else [path]
        )
        for file in files:
            try:
                documents = list(YAML(typ="safe", pure=True).load_all(file.read_bytes()))
            except (OSError, YAMLError, UnicodeDecodeError) as error:
                raise TestFileError(f"{file}: {error}") from error
            for number, document in enumerate(documents, 1):
                if not isinstance(document, dict) or document.get("kind") != "PolicyTest":
                    continue
                try:
                    yield file, msgspec.convert(document, PolicyTest)
                except msgspec.ValidationError as error:
                    raise TestFileError(f"{file}: document {number}: {str(error).replace('`$.', '`')}") from error


def run(file: Path, test: PolicyTest) -> list[CaseResult]:
    """Run one PolicyTest. Raises TestFileError if its policies or objects cannot be loaded."""
    try:
        engine = Engine(load_or_raise(file.parent / test.spec.policies))
        objects = objects_from((f"{file}: spec.objects[{at}]", item) for at, item in enumerate(test.spec.objects))
    except (PolicyError, ObjectsError, OSError) as error:
        raise TestFileError(f"{file}: {error}") from error
    try:
        now = None if test.spec.now is None else epoch(test.spec.now)
    except InstantError as error:
        raise TestFileError(f"{file}: spec.now: {error}") from error
    context = Context(engine, objects) if now is None else Context(engine, objects, clock=lambda: now)
    return [_run_case(context, file, test.metadata.name, case) for case in test.spec.cases]


def _run_case(context: Context, file: Path, test: str, case: Case) -> CaseResult:
    """Run one case in its phases; validation sees what mutation made of the object."""
    began = time.perf_counter()
    answers: dict[Phase, Answer] = {}
    request = case.request
    if case.phase in ("mutate", "both"):
        answers["mutate"] = _ask(context, "mutate", request)
    if case.phase in ("validate", "both"):
        patch = answers["mutate"].patch if answers else []
        if patch and request.object is not None:
            request = msgspec.structs.replace(request, object=apply(request.object, patch))
        answers["validate"] = _ask(context, "validate", request)
    last = list(answers.values())[-1]
    return CaseResult(
        file=file,
        test=test,
        case=case.name,
        verdict="allow" if last.allowed else "deny",
        failures=list(_failures(case.expect, answers, last)),
        seconds=time.perf_counter() - began,
    )


def _ask(context: Context, phase: Phase, request: TestRequest) -> Answer:
    """The answer to the request of a case, sent as the review that an API server makes of it."""
    shown = request.object or request.old_object or {}
    meta = shown.get("metadata") if isinstance(shown.get("metadata"), dict) else {}
    kind = str(shown.get("kind", ""))
    group, resource = _RESOURCES.get(kind, ("", kind.lower() + "s"))
    body = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "policy-test",
            "resource": {"group": group, "version": "v1", "resource": resource},
            "operation": request.operation,
            "namespace": (meta or {}).get("namespace", ""),
            "name": (meta or {}).get("name", ""),
            "userInfo": {"username": request.user, "groups": request.groups},
            "object": request.object,
            "oldObject": request.old_object,
            "dryRun": request.dry_run,
        },
    }
    return review(context, phase, msgspec.json.encode(body)).answer


def _failures(expect: Expect, answers: dict[Phase, Answer], last: Answer) -> Iterator[str]:
    """In what the answer differs from what is expected, one sentence each."""
    verdict = "allow" if last.allowed else "deny"
    text = last.message or "; ".join(last.refusals)
    if verdict != expect.verdict:
        yield f"verdict: expected {expect.verdict}, got {verdict}{': ' if text else ''}{text}"
    if expect.rule is not None:
        # Every rule that had a part: that refused, warned, would have refused, or filled something in
        rules = {row.id for answer in answers.values() for row in answer.verdicts if row.outcome != "allow"}
        applied = answers["mutate"].audit.get("applied", "") if "mutate" in answers else ""
        rules.update(filter(None, applied.split(",")))
        if expect.rule not in rules:
            yield f"rule: expected {expect.rule}, got {', '.join(sorted(rules)) or 'none'}"
    if expect.message is not None and expect.message not in text:
        yield f"message: expected {expect.message!r} in {text!r}"
    if expect.patch is not None:
        patch = _without_record(answers["mutate"].patch) if "mutate" in answers else []
        if sorted(patch, key=_path) != sorted(expect.patch, key=_path):
            yield f"patch: expected {_json(expect.patch)}, got {_json(patch)}"
    if expect.warnings is not None:
        warnings = [text for row in answers.values() for text in row.warnings]
        for words in expect.warnings:
            if not any(words in warning for warning in warnings):
                yield f"warnings: expected {words!r} in {warnings or 'none'}"
        if not expect.warnings and warnings:
            yield f"warnings: expected none, got {warnings}"


def _without_record(patch: list[Operation]) -> list[Operation]:
    """A patch as authors of policies write it: without the record that the webhook keeps of what it gave."""
    shown: list[Operation] = []
    for operation in patch:
        path, value = operation["path"], operation.get("value")
        if path == f"/metadata/annotations/{escape(GIVEN)}":
            continue
        if path == "/metadata/annotations" and isinstance(value, dict) and GIVEN in value:
            value = {key: text for key, text in value.items() if key != GIVEN}
            if not value:
                continue
            operation = {**operation, "value": value}  # noqa: PLW2901 - the rest of it stays as it is
        shown.append(operation)
    return shown


def _path(operation: Operation) -> str:
    return str(operation.get("path"))


def _json(patch: list[Operation]) -> str:
    return msgspec.json.encode(patch).decode()
