"""What policies share that is one value: names, globs, CEL expressions, keys of annotations and labels."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal

from webhook.kube.pods import POD_DELETION_COST
from webhook.policy.cel.differences import differences
from webhook.policy.cel.fields import unknown_fields
from webhook.policy.cel.program import CelError, CelProblem, Program
from webhook.policy.model.globs import WILDCARD
from webhook.policy.shapes.findings import Mention, Reader, Severity
from webhook.policy.shapes.shapes import INVALID, Definitions, ListOf, Text
from webhook.policy.shapes.yaml_nodes import YamlNode, YamlScalar

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

KNOWN_ANNOTATIONS = {
    CAN_BE_PREEMPTED: "the pod may be a victim, when exactly true",
    PROTECTION_DURATION: "seconds after its start during which the pod is no victim",
    POD_DELETION_COST: "what the eviction of the pod costs, where a policy counts it",
    READY: "the pod need not be waited for after a notice, when exactly true",
    POD_SCALE_UP_DELAY: "how long cluster-autoscaler adds no node for the pod",
    "volcano.sh/preemptable": "Volcano's spelling of preemptible",
}
"""The annotations about preemption that are known, with what they say."""

_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_GLOB = r"[-a-z0-9.*]+"


@dataclass(frozen=True)
class _Glob:
    """A name in which * may stand for any characters; one that looks like a regular expression is pointed out.

    `noted` says that it is a PriorityClass that should exist, for the check of names.
    """

    name: Text
    noted: bool = False

    def read(self, node: YamlNode, reader: Reader) -> Any:
        """The name or glob."""
        name = self.name.read(node, reader)
        if name is not INVALID and self.noted:
            reader.classes.append((name, node))
        if name is not INVALID and f".{WILDCARD}" in name:
            glob = name.replace(f".{WILDCARD}", WILDCARD)
            reader.warn(node, f'"{name}" means names with a dot in them; * alone stands for any characters: "{glob}"')
        return name

    def schema(self, definitions: Definitions) -> dict[str, Any]:
        """A string."""
        return self.name.schema(definitions)


NAME = Text("a name (a-z, 0-9, - and .)", f"^{_SUBDOMAIN}$", longest=253)
NEW_CLASS_GLOB = _Glob(
    Text("the name of a PriorityClass, in which * stands for any characters", f"^{_GLOB}$", longest=253)
)
"""The name of a class that need not exist yet."""
NAMESPACE = _Glob(Text("the name of a namespace, in which * stands for any characters", f"^{_GLOB}$", longest=63))
NAMESPACES = ListOf(NAMESPACE, least=1)

_EXPRESSION = Text("a CEL expression", longest=100_000)


@dataclass(frozen=True)
class Expression:
    """A CEL expression that `compile` accepts."""

    compile: Callable[[str], Any]

    def read(self, node: YamlNode, reader: Reader) -> Any:
        """The expression's text."""
        if isinstance(node, YamlScalar) and node.plain and node.text in ("true", "false"):
            reader.count()
            return node.text
        text = _EXPRESSION.read(node, reader)
        if text is INVALID:
            return INVALID
        try:
            self.compile(text)
        except CelError as error:
            assert isinstance(node, YamlScalar)
            for problem in error.problems:
                line, column = _place(node, problem, reader)
                reader.at(Severity.ERROR, line, column, f"CEL: {problem.message}")
            return INVALID
        for word, offset, what in differences(text):
            _warn_at(node, text, offset, f"{word} {what}", len(word), reader)
        return text

    def schema(self, definitions: Definitions) -> dict[str, Any]:
        """A string."""
        del definitions
        return {"type": "string", "minLength": 1, "maxLength": 4096}


def warn_of_unknown_fields(program: Program, node: YamlNode, reader: Reader, about: Collection[str]) -> None:
    """Point out what an expression that stands at `node` reads and no object of these kinds has."""
    for unknown in unknown_fields(program.text, program.tree, about):
        message = f"{unknown}{reader.nearest(unknown.name, unknown.known)}"
        _warn_at(node, program.text, unknown.offset, message, len(unknown.name), reader)


def _warn_at(node: YamlNode, text: str, offset: int, message: str, width: int, reader: Reader) -> None:  # noqa: PLR0917
    """Warn of a place in the expression `text` that stands at `node`."""
    assert isinstance(node, YamlScalar)
    before = text[:offset]
    problem = CelProblem(before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1, "")
    line, column = _place(node, problem, reader)
    reader.at(Severity.WARNING, line, column, f"CEL: {message}", width=width)


def _place(node: YamlScalar, problem: CelProblem, reader: Reader) -> tuple[int, int]:
    """Where a place in the expression stands in the file; its beginning, where YAML folded or escaped the text."""
    if node.style == "|":
        line = node.line + problem.line
        rows = node.text.split("\n")
        row = rows[problem.line - 1] if problem.line <= len(rows) else ""
        return line, len(reader.line(line)) - len(row) + problem.column
    quote = 1 if node.style in ("'", '"') else 0
    written = reader.line(node.line)[node.column - 1 + quote :]
    if problem.line == 1 and written.startswith(node.text[: problem.column]):
        return node.line, node.column + quote + problem.column - 1
    return node.line, node.column


CLASS_NAME = _Glob(Text("the name of a PriorityClass (a-z, 0-9, - and .)", f"^{_SUBDOMAIN}$", longest=253), noted=True)
CLASS_GLOB = _Glob(NEW_CLASS_GLOB.name, noted=True)


def _annotation_wrong(text: str) -> str:
    if text in OWN_ANNOTATIONS:
        return f"{text} is giveway's own: it is protected always, and no policy reads, copies or allows it"
    prefix, slash, name = text.rpartition("/")
    fits = re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", name, re.ASCII)
    if fits and (not slash or re.fullmatch(_SUBDOMAIN, prefix, re.ASCII)):
        return ""
    return f'"{text[:80]}" is not an annotation key such as {CAN_BE_PREEMPTED}'


_KEY = Text("an annotation key", check=_annotation_wrong, longest=317)


@dataclass(frozen=True)
class _Annotation:
    """An annotation key, noted for the check of spellings; `recognises` says that naming it makes it known."""

    recognises: bool

    def read(self, node: YamlNode, reader: Reader) -> Any:
        """The key."""
        key = _KEY.read(node, reader)
        if key is not INVALID:
            reader.annotations.append(Mention(key, node, self.recognises))
        return key

    def schema(self, definitions: Definitions) -> dict[str, Any]:
        """A string, with the known keys as examples for editors."""
        return {**_KEY.schema(definitions), "examples": list(KNOWN_ANNOTATIONS)}


ANNOTATION = _Annotation(recognises=False)
"""A key that is expected to be a known one."""
RECOGNISED_ANNOTATION = _Annotation(recognises=True)
"""A key that becomes known by being named here."""

LABEL_VALUE = Text("a label's value", "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$", longest=63, may_be_empty=True)
LABEL_KEY = Text(
    "a label's key", check=lambda text: _annotation_wrong(text).replace("an annotation key", "a label key")
)
