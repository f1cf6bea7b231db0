"""Tables of what policies share: names, expressions, subjects, selectors, `match`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from webhook.kube.objects import LabelSelector, Requirement
from webhook.kube.selectors import SelectorError, label_matcher
from webhook.policy.cel.program import CelError, CelProblem
from webhook.policy.files.findings import Severity
from webhook.policy.files.object_shape import Field, ObjectShape, Values
from webhook.policy.files.reader import Mention, Reader
from webhook.policy.files.shapes import INVALID, Choice, Definitions, ListOf, MapOf, Text
from webhook.policy.files.yamltree import YamlNode, YamlScalar
from webhook.policy.model import (
    CAN_BE_PREEMPTED,
    OWN_ANNOTATIONS,
    PROTECTION_DURATION,
    RequestMatch,
    SourcePosition,
    Subject,
)

__all__ = [
    "ANNOTATION",
    "CLASS_GLOB",
    "CLASS_NAME",
    "KNOWN_ANNOTATIONS",
    "MATCH",
    "MATCH_FIELDS",
    "NAME",
    "NAMESPACES",
    "OPERATIONS",
    "RECOGNISED_ANNOTATION",
    "SELECTOR",
    "SUBJECTS",
    "Expression",
    "match_record",
]

KNOWN_ANNOTATIONS = {
    CAN_BE_PREEMPTED: "the pod may be a victim, when exactly true",
    PROTECTION_DURATION: "seconds after its start during which the pod is no victim",
    "volcano.sh/preemptable": "Volcano's spelling of preemptible",
}
"""The annotations about preemption that are known, with what they say."""

_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_GLOB = r"[-a-z0-9.*]+"

NAME = Text("a name (a-z, 0-9, - and .)", f"^{_SUBDOMAIN}$", longest=253)
CLASS_NAME = Text("the name of a PriorityClass (a-z, 0-9, - and .)", f"^{_SUBDOMAIN}$", longest=253)
CLASS_GLOB = Text("the name of a PriorityClass, in which * stands for any characters", f"^{_GLOB}$", longest=253)
_NAMESPACE = Text("the name of a namespace, in which * stands for any characters", f"^{_GLOB}$", longest=63)
NAMESPACES = ListOf(_NAMESPACE, least=1)


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
        return text

    def schema(self, definitions: Definitions) -> dict[str, Any]:
        """A string."""
        del definitions
        return {"type": "string", "minLength": 1, "maxLength": 4096}


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

OPERATIONS = ListOf(
    Choice("an operation", {"CREATE": "the object is made", "UPDATE": "the object is changed"}), least=1
)


def _subject_check(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    account = values.get("kind") == "ServiceAccount"
    if account and "namespace" not in values and "kind" in nodes:
        reader.error(nodes["kind"], 'a ServiceAccount needs "namespace"; "*" is any')
    if not account and "namespace" in nodes and "kind" in values:
        reader.error(nodes["namespace"], f'a {values["kind"]} has no "namespace"; only ServiceAccounts do')
    name = values.get("name", "")
    if values.get("kind") == "User" and name.startswith("system:serviceaccount:") and "*" not in name:
        reader.warn(
            nodes["name"], "this is a service account; kind: ServiceAccount with namespace and name says it plainly"
        )


_SUBJECT = ObjectShape(
    "subject",
    "Who asks. The pods of a Deployment or Job are made by a controller, of which subjects say nothing.",
    (
        Field(
            "kind",
            "kind",
            Choice(
                "a kind of subject",
                {"User": "by user name", "Group": "by group", "ServiceAccount": "by namespace and name"},
            ),
            "User, Group or ServiceAccount.",
            required=True,
        ),
        Field("name", "name", Text("a name"), "The name; * stands for any characters.", required=True),
        Field("namespace", "namespace", _NAMESPACE, "The ServiceAccount's namespace; * stands for any characters."),
    ),
    model=Subject,
    check=_subject_check,
)
SUBJECTS = ListOf(_SUBJECT, least=1)


def _requirement(values: Values, source: SourcePosition) -> Requirement:
    del source
    return Requirement(
        key=values["key"], operator=values["operator"], values=list(values["values"]) if "values" in values else None
    )


def _requirement_check(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    if "key" not in values or "operator" not in values:
        return
    try:
        label_matcher(LabelSelector(match_expressions=[_requirement(values, SourcePosition())]))
    except SelectorError as error:
        reader.error(nodes.get("values", nodes["operator"]), str(error))


_LABEL_VALUE = Text("a label's value", "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)$", longest=63)
_LABEL_KEY = Text(
    "a label's key", check=lambda text: _annotation_wrong(text).replace("an annotation key", "a label key")
)

_REQUIREMENT = ObjectShape(
    "label requirement",
    "One row of matchExpressions.",
    (
        Field("key", "key", _LABEL_KEY, "The label's key.", required=True),
        Field(
            "operator",
            "operator",
            Choice(
                "an operator",
                {
                    "In": "the value is one of these",
                    "NotIn": "the value is not one of these, or the label is not there",
                    "Exists": "the label is there",
                    "DoesNotExist": "the label is not there",
                },
            ),
            "In, NotIn, Exists or DoesNotExist.",
            required=True,
        ),
        Field("values", "values", ListOf(_LABEL_VALUE), "The values for In and NotIn."),
    ),
    build=_requirement,
    check=_requirement_check,
)


def _selector(values: Values, source: SourcePosition) -> LabelSelector:
    del source
    rows = values.get("match_expressions")
    return LabelSelector(match_labels=values.get("match_labels"), match_expressions=list(rows) if rows else None)


SELECTOR = ObjectShape(
    "label selector",
    "As everywhere in Kubernetes: all that is named must hold; an empty one selects everything.",
    (
        Field("matchLabels", "match_labels", MapOf(_LABEL_VALUE, _LABEL_KEY), "Labels with exactly these values."),
        Field("matchExpressions", "match_expressions", ListOf(_REQUIREMENT), "Further requirements on labels."),
    ),
    build=_selector,
)

MATCH_FIELDS = {
    field.name: field
    for field in (
        Field(
            "namespaces",
            "namespaces",
            NAMESPACES,
            "The object's namespace is one of these; * stands for any characters. Says nothing about PriorityClasses.",
        ),
        Field(
            "namespaceSelector",
            "namespace_selector",
            SELECTOR,
            "The labels of the object's namespace are selected. Says nothing about PriorityClasses.",
        ),
        Field(
            "objectSelector",
            "object_selector",
            SELECTOR,
            "The labels of the pod, the pod template or the PriorityClass are selected, before or after an update.",
        ),
        Field("subjects", "subjects", SUBJECTS, "Who asks is one of these."),
        Field("operations", "operations", OPERATIONS, "CREATE, UPDATE or both (when absent)."),
    )
}


def match_record(title: str, doc: str, *names: str) -> ObjectShape:
    """A `match` with some of its parts."""
    return ObjectShape(title, doc, tuple(MATCH_FIELDS[name] for name in names), model=RequestMatch)


MATCH: ObjectShape = match_record(
    "match", "Which requests are meant: everything named must hold, what is absent always does.", *MATCH_FIELDS
)
