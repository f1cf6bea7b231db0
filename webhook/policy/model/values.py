"""What policies share that is one value: names, globs, CEL expressions, keys of annotations and labels."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec.structs import replace

from webhook.kube.pods import POD_DELETION_COST
from webhook.policy.cel.fields import unknown_fields
from webhook.policy.cel.program import LONGEST_EXPRESSION, CelError, CelProblem, Program
from webhook.policy.model.globs import WILDCARD
from webhook.policy.shapes.findings import INVALID, Reader, Severity
from webhook.policy.shapes.object_shape import FILLED
from webhook.policy.shapes.shapes import Scalar, ShapeError, string
from webhook.policy.shapes.yaml_nodes import SourcePosition, YamlNode, YamlScalar

CAN_BE_PREEMPTED = "godel.bytedance.com/can-be-preempted"
PROTECTION_DURATION = "godel.bytedance.com/protection-duration-from-preemption"
MINIMUM_PREEMPTABLE_PRIORITY = "preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority"
"""PreemptionToleration's annotation of a PriorityClass: from which priority on preemptors evict its pods at once."""
TOLERATION_SECONDS = "preemption-toleration.scheduling.x-k8s.io/toleration-seconds"
"""PreemptionToleration's annotation of a PriorityClass: for how long after their start the others do not."""
MARK = "giveway.dev/preemption"
"""The label by which the webhook hands a pod's preemption to the reconciler."""
MANAGED = "managed"
"""The value of the mark."""
PLAN = "giveway.dev/plan"
"""The annotation with a plan under way, on its preemptor."""
DECISION = "giveway.dev/decision"
"""The annotation with the last decision made for a pod."""
NOTICE = "giveway.dev/notice"
"""The annotation on a victim with by when it is asked to leave, and for whom."""
READY = "giveway.dev/ready-to-leave"
"""The annotation by which a victim that has a notice says, when exactly true, that it need not be waited for."""
GIVEN = "giveway.dev/given"
"""The annotation with what the webhook gave a new pod."""
CREATION = "giveway.dev/creation"
"""The annotation with what a pod said when it was made, of what decides about it."""

POD_SCALE_UP_DELAY = "cluster-autoscaler.kubernetes.io/pod-scale-up-delay"
"""cluster-autoscaler's annotation of a pod: for how long after it was made no node is added for it."""


@dataclass(frozen=True, slots=True)
class PodAnnotation:
    """An annotation of giveway on pods."""

    key: str
    by: Literal["reconciler", "webhook", "pod"]
    """Who alone writes it; `pod`: it is the pod's answer to what the reconciler wrote, and anybody's to write."""
    goes: bool
    """Whether `giveway uninstall` takes it off: it says what giveway is about to do, or giveway believes it later."""


POD_ANNOTATIONS = (
    PodAnnotation(PLAN, "reconciler", goes=True),
    PodAnnotation(DECISION, "reconciler", goes=False),
    PodAnnotation(NOTICE, "reconciler", goes=True),
    PodAnnotation(READY, "pod", goes=True),
    PodAnnotation(GIVEN, "webhook", goes=False),
    PodAnnotation(CREATION, "webhook", goes=True),
)
"""All of them: whoever reads, keeps or takes off several goes by these rows."""
RECONCILER_ANNOTATIONS = tuple(row.key for row in POD_ANNOTATIONS if row.by == "reconciler")
"""What the reconciler writes on pods, and nobody else."""
WEBHOOK_ANNOTATIONS = tuple(row.key for row in POD_ANNOTATIONS if row.by == "webhook")
"""What the webhook writes on new pods, and nobody else."""
OWN_ANNOTATIONS = tuple(row.key for row in POD_ANNOTATIONS if row.by != "pod")
"""giveway's own annotations on pods: nobody else writes them, whatever the policies say."""
ANSWERS = tuple(row.key for row in POD_ANNOTATIONS if row.by == "pod")
"""What pods answer to a notice. A new notice takes them off."""
NOTICE_CONDITION = "giveway.dev/PreemptionNotice"
"""The condition of a pod that says the same as the notice."""
POD_CONDITIONS = (NOTICE_CONDITION,)
"""The conditions that giveway writes on pods."""

KNOWN_ANNOTATIONS = [
    CAN_BE_PREEMPTED,
    PROTECTION_DURATION,
    POD_DELETION_COST,
    READY,
    POD_SCALE_UP_DELAY,
    "volcano.sh/preemptable",
]
"""The annotations about preemption that are known, which editors offer."""

_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_QUALIFIED = re.compile(rf"({_SUBDOMAIN}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?", re.ASCII)
_GLOB = r"[-a-z0-9.*]+"


def _glob(name: str, scalar: YamlScalar, reader: Reader) -> None:
    """Point out what looks like a regular expression."""
    if f".{WILDCARD}" in name:
        glob = name.replace(f".{WILDCARD}", WILDCARD)
        text = f'"{name}" means names with a dot in them; * alone stands for any characters'
        reader.warn(scalar, f'{text}: "{glob}"')


def _class(name: str, scalar: YamlScalar, reader: Reader) -> None:
    """Note a PriorityClass that should exist, for the check of names."""
    reader.classes.append((name, scalar))
    _glob(name, scalar, reader)


_A_CLASS = "the name of a PriorityClass"
Name = Annotated[str, string("a name (a-z, 0-9, - and .)", f"^{_SUBDOMAIN}$", longest=253)]
CLASS_NAME = string(f"{_A_CLASS} (a-z, 0-9, - and .)", f"^{_SUBDOMAIN}$", longest=253, check=_class)
ClassName = Annotated[str, CLASS_NAME]
_ANY_CLASS = f"{_A_CLASS}, in which * stands for any characters"
ClassGlob = Annotated[str, string(_ANY_CLASS, f"^{_GLOB}$", longest=253, check=_class)]
_NEW_CLASS = string(_ANY_CLASS, f"^{_GLOB}$", longest=253, check=_glob)
NewClassGlobs = Annotated[tuple[Annotated[str, _NEW_CLASS], ...], FILLED]
"""Names of classes that need not exist yet."""
NamespaceGlob = Annotated[
    str, string("the name of a namespace, in which * stands for any characters", f"^{_GLOB}$", longest=63, check=_glob)
]
Namespaces = Annotated[tuple[NamespaceGlob, ...], FILLED]


def expression(compile_: Callable[[str], Program], about: Collection[str] = ()) -> Scalar:
    """A CEL expression that `compile_` accepts; `about` unless it is said beside it (`warn_of`)."""
    plain = string("a CEL expression", longest=100_000)

    def convert(scalar: YamlScalar, reader: Reader) -> Any:
        if scalar.plain and scalar.text in ("true", "false"):
            return scalar.text
        text = plain.convert(scalar, reader)
        try:
            program = compile_(text)
        except CelError as error:
            for problem in error.problems:
                reader.at(Severity.ERROR, _place(scalar, problem, reader), f"CEL: {problem.message}")
            return INVALID
        if about:
            warn_of(program, scalar, reader, about)
        return text

    return Scalar(plain.what, {**plain.json_schema, "maxLength": LONGEST_EXPRESSION}, convert)


def warn_of(program: Program, node: YamlNode, reader: Reader, about: Collection[str]) -> None:
    """Point out what an expression at `node` reads and no such object has."""
    for offset, name, lacks, known in unknown_fields(program.text, program.tree, about):
        text = f"CEL: {lacks}{reader.nearest(name, known)}"
        before = program.text[:offset]
        problem = CelProblem(before.count("\n") + 1, offset - before.rfind("\n"), "")
        reader.at(Severity.WARNING, _place(node, problem, reader), text)


def _place(node: YamlNode, problem: CelProblem, reader: Reader) -> SourcePosition:
    """Where a place in the expression stands; its beginning, where YAML folded the text."""
    assert isinstance(node, YamlScalar)
    source = reader.source(node)
    if node.style == "|":
        line = node.line + problem.line
        rows = node.text.split("\n")
        row = rows[problem.line - 1] if problem.line <= len(rows) else ""
        return replace(source, line=line, column=len(reader.line(line)) - len(row) + problem.column)
    quote = 1 if node.style in ("'", '"') else 0
    written = reader.line(node.line)[node.column - 1 + quote :]
    if problem.line == 1 and written.startswith(node.text[: problem.column]):
        return replace(source, column=node.column + quote + problem.column - 1)
    return source


def _key(what: str, longest: int, *, recognises: bool | None = None, **described: Any) -> Scalar:
    """A label's key, or an annotation's, which is noted; `recognises`: it is known then; None for labels."""

    def check(text: str, scalar: YamlScalar, reader: Reader) -> None:
        if text in OWN_ANNOTATIONS:
            never = "it is protected always, and no policy reads, copies or allows it"
            raise ShapeError(f"{text} is giveway's own: {never}")
        if not _QUALIFIED.fullmatch(text):
            raise ShapeError(f'"{text[:80]}" is not {what} such as {CAN_BE_PREEMPTED}')
        if recognises is not None:
            reader.annotations.append((text, scalar, recognises))

    return string(what, longest=longest, check=check, **described)


Annotation = Annotated[str, _key("an annotation key", 317, recognises=False, examples=KNOWN_ANNOTATIONS)]
"""A key that is expected to be a known one."""
RECOGNISED_ANNOTATION = _key("an annotation key", 317, recognises=True, examples=KNOWN_ANNOTATIONS)
RecognisedAnnotation = Annotated[str, RECOGNISED_ANNOTATION]
"""A key that becomes known by being named here."""
RecognisedAnnotations = Annotated[tuple[RecognisedAnnotation, ...], FILLED]
LABEL_KEY = _key("a label's key", 1024)
LABEL_VALUE = string("a label's value", "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$", longest=63, may_be_empty=True)
