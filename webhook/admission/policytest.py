"""Declarative tests beside the policies: given objects and a request, what must become of it."""

import difflib
import re
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from webhook.admission.context import Context
from webhook.admission.kubectl_yaml import YamlDocument, read_yaml
from webhook.admission.objectfiles import ObjectDocument, ObjectsError, documents_in, objects_of, readable
from webhook.admission.review import Answer, Json, Operation
from webhook.admission.webhook import Phase, ask, review_of
from webhook.kube.instants import InstantError, epoch
from webhook.kube.json_patch import apply_json_patch, escape
from webhook.policy.evaluation.engine import Engine
from webhook.policy.evaluation.request import part
from webhook.policy.evaluation.rules import BUILTIN
from webhook.policy.files.loading import SUFFIXES, load_or_raise
from webhook.policy.model.policies import Policies
from webhook.policy.model.values import WEBHOOK_ANNOTATIONS
from webhook.policy.shapes.findings import PolicyError
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

    object: Json | None = None
    old_object: Json | None = None
    operation: Literal["CREATE", "UPDATE", "DELETE"] = "CREATE"
    user: str = "someone"
    groups: tuple[str, ...] = ("system:authenticated",)
    dry_run: bool = False

    def __post_init__(self) -> None:
        """Without these nothing is judged, and every verdict would be to be expected."""
        needed = {"object": self.operation != "DELETE", "oldObject": self.operation != "CREATE"}
        for field, value in (("object", self.object), ("oldObject", self.old_object)):
            if needed[field] and value is None:
                raise ValueError(f"{self.operation} needs `{field}`")


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
    objects: list[Json] = []
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
    document: YamlDocument
    test: PolicyTest

    def place(self, *path: str | int) -> SourcePosition:
        """Where a field of its spec stands."""
        return SourcePosition(str(self.file), *self.document.place("spec", *path))


def find(paths: Iterable[Path]) -> Iterator[FoundTest]:
    """All PolicyTests in and below these. Raises TestFileError for what is unreadable or said twice."""
    for path in paths:
        if not path.exists():
            raise TestFileError(SourcePosition(str(path)), "no such file or directory")
        files = [path]
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES)
        for file in files:
            try:
                documents = list(read_yaml(file.read_bytes()))
            except OSError as error:
                raise TestFileError(SourcePosition(str(file)), str(error)) from error
            for document in documents:
                for line, column, text in (*document.warnings, *filter(None, [document.problem])):
                    raise TestFileError(SourcePosition(str(file), line, column), f"YAML: {text}")
                if isinstance(document.value, dict) and document.value.get("kind") == "PolicyTest":
                    yield FoundTest(file, document, _test(file, document))


def _test(file: Path, document: YamlDocument) -> PolicyTest:
    try:
        return msgspec.convert(document.value, PolicyTest)
    except msgspec.ValidationError as error:
        # The path that msgspec names, such as `$.spec.cases[0]`; with the unknown field, if it is one
        said = str(error)
        where = re.search(r"`\$([^`]*)`$", said)
        steps = _STEP.findall(where[1]) if where else []
        path = [name or int(number) for name, number in steps]
        path += re.findall(r"^Object contains unknown field `([^`]+)`", said)
        place = SourcePosition(str(file), *document.place(*path))
        raise TestFileError(place, said.replace("`$.", "`")) from error


class CaseResult(msgspec.Struct, kw_only=True):
    """One case that ran; `failures` say what was expected and what came, and `place` where a failed one stands."""

    file: Path
    place: SourcePosition | None
    test: str
    case: str
    verdict: str
    failures: list[str]
    seconds: float


def run(found_test: FoundTest) -> list[CaseResult]:
    """Run one PolicyTest. Raises TestFileError if its policies or objects cannot be loaded."""
    file, test = found_test.file, found_test.test
    try:
        engine = Engine(load_or_raise(file.parent / test.spec.policies))
        given: list[ObjectDocument] = []
        for at, item in enumerate(test.spec.objects):
            given += readable([*documents_in(f"{file}: spec.objects[{at}]", item)])
        objects = objects_of(given)
    except (PolicyError, ObjectsError, OSError) as error:
        raise TestFileError(found_test.place("policies"), str(error)) from error
    try:
        now = time.time() if test.spec.now is None else epoch(test.spec.now)
    except InstantError as error:
        raise TestFileError(found_test.place("now"), f"spec.now: {error}") from error
    context = Context(engine, objects, clock=lambda: now)
    return [_run_case(context, found_test, number) for number in range(len(test.spec.cases))]


def _run_case(context: Context, found_test: FoundTest, number: int) -> CaseResult:
    """Run one case in its phases; validation sees what mutation made of the object."""
    began, case = time.perf_counter(), found_test.test.spec.cases[number]
    answers: list[Answer] = []
    request = case.request
    shown = request.object or request.old_object or {}
    meta = part(shown, "metadata")
    # As the review that an API server makes of it
    asked = partial(
        review_of,
        str(shown.get("kind", "")),
        user={"username": request.user, "groups": request.groups},
        operation=request.operation,
        old_object=request.old_object,
        namespace=meta.get("namespace", ""),
        name=meta.get("name", ""),
        dry_run=request.dry_run,
    )
    sent = request.object
    phases: tuple[Phase, ...] = ("mutate", "validate") if case.phase == "both" else (case.phase,)
    for phase in phases:
        answers.append(ask(context, phase, asked(sent)))
        if answers[-1].patch and sent is not None:
            sent = apply_json_patch(sent, answers[-1].patch)
    failures = list(_failures(context.engine.policies, case.expect, answers))
    return CaseResult(
        file=found_test.file,
        place=found_test.place("cases", number) if failures else None,
        test=found_test.test.metadata.name,
        case=case.name,
        verdict="allow" if answers[-1].allowed else "deny",
        failures=failures,
        seconds=time.perf_counter() - began,
    )


def _failures(policies: Policies, expect: Expect, answers: list[Answer]) -> Iterator[str]:
    """Where the answers differ from what is expected, of which a verdict is a part; the last one decides."""
    yield from dict.fromkeys(f"no verdict: {answer.message}" for answer in answers if answer.code != 200)
    verdict = "allow" if answers[-1].allowed else "deny"
    text = answers[-1].message or "; ".join(answers[-1].refusals)
    if verdict != expect.verdict:
        got = f"{verdict}: {text}" if text else verdict
        yield f"verdict: expected {expect.verdict}, got {got}"
    if expect.rule is not None:
        # Every rule that had a part: that refused, warned, would have refused, or filled something in
        rules: set[str] = set()
        for answer in answers:
            rules.update(row.id for row in answer.verdicts if row.outcome != "allow")
            rules.update(filter(None, answer.audit.get("applied", "").split(",")))
        if expect.rule not in rules:
            got = ", ".join(sorted(rules)) or "none"
            got += _unknown_rule(policies, expect.rule)
            yield f"rule: expected {expect.rule}, got {got}"
    if expect.message is not None and expect.message not in text:
        yield f"message: expected {expect.message!r} in {text!r}"
    if expect.patch is not None:
        patch = _without_record([row for answer in answers for row in answer.patch])
        both = expect.patch, patch
        wanted, given = (sorted(rows, key=lambda row: str(row.get("path"))) for rows in both)
        if given != wanted:
            shown = [msgspec.json.encode(rows).decode() for rows in both]
            yield "patch: expected {}, got {}".format(*shown)
    if expect.warnings is not None:
        warnings = [text for answer in answers for text in answer.warnings]
        for words in expect.warnings:
            if not any(words in warning for warning in warnings):
                yield f"warnings: expected {words!r} in {warnings or 'none'}"
        if not expect.warnings and warnings:
            yield f"warnings: expected none, got {warnings}"


def _unknown_rule(policies: Policies, rule: str) -> str:
    """That no policy has this rule; empty if one has, or it is built in."""
    known = [row.id for _, row in policies.rules]
    known += [f"{policy.name}/{row.name}" for policy in policies.priority for row in policy.conditions]
    if rule in known or rule.partition("/")[0] == BUILTIN:
        return ""
    text = f'; no policy has a rule "{rule}"'
    near = difflib.get_close_matches(rule, known, n=1)
    return f'{text}; did you mean "{near[0]}"?' if near else text


def _without_record(patch: list[Operation]) -> list[Operation]:
    """A patch without the webhook's own records, as authors of policies write it."""
    own = {f"/metadata/annotations/{escape(key)}" for key in WEBHOOK_ANNOTATIONS}
    shown = []
    for row in patch:
        if row["path"] != "/metadata/annotations":
            shown += [row] if row["path"] not in own else []
        elif value := {key: text for key, text in row["value"].items() if key not in WEBHOOK_ANNOTATIONS}:
            shown.append({**row, "value": value})
    return shown
