"""Manifests before they are applied: what the policies would say of each, if it were created.

They are judged by the webhook's own functions (`webhook.inspection.judge`), over the PriorityClasses and Namespaces
that are among them or were given besides. Whoever applies them may be named; else a rule that decides by who asks
cannot be judged, as in a scan. Pure.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from webhook.admission.context import CLASSES, NAMESPACES, Lookup
from webhook.admission.objectfiles import ObjectDocument, ObjectsError, objects_of, typed
from webhook.inspection.cluster_findings import names
from webhook.inspection.judge import KINDS, UNKNOWN, Existing, Judge, Judged, Maker, Said
from webhook.inspection.reading import in_reach
from webhook.kube.objects.cluster_scoped import Namespace
from webhook.kube.objects.meta import ObjectMeta
from webhook.policy.evaluation.request import CONTROLLER, UserInfo
from webhook.policy.model.match import SERVICE_ACCOUNT
from webhook.policy.model.policies import Policies

_PLURALS = {kind: (group, plural) for plural, (group, kind) in KINDS.items()}
_CONTROLLER = Maker("controller", CONTROLLER)
_MAPS = frozenset({"annotations", "labels", "matchLabels", "nodeSelector"})
_encode = msgspec.json.Encoder().encode


class ManifestVerdict(msgspec.Struct, rename="camel"):
    """What the policies say of one object. `problem` says why there is no verdict.

    What cannot be read as an object has no kind. `line` is the one on which its document begins, 0 if it has none.
    """

    file: str
    kind: str
    namespace: str
    name: str
    said: list[Said] = []
    problem: str = ""
    line: int = 0

    @property
    def title(self) -> str:
        """`Deployment team-a/web`."""
        if not self.kind:
            return f"the document on line {self.line}" if self.line else "the file"
        return f"{self.kind} {f'{self.namespace}/' if self.namespace else ''}{self.name}"

    def has(self, verdicts: Iterable[str]) -> bool:
        """Whether some rule said one of these."""
        return any(said.verdict in verdicts for said in self.said)


class ManifestReport(msgspec.Struct, rename="camel"):
    """All of them, in their order; `passed_over` counts what is not judged, by the reason.

    `assumed` says what was not known of the cluster, and what was taken for true instead, `warnings` what the files say
    twice.
    """

    judged: list[ManifestVerdict] = []
    passed_over: dict[str, int] = {}
    assumed: list[str] = []
    warnings: list[str] = []


def author(user: str, groups: Iterable[str]) -> Maker:
    """Who applies the manifests: a user name with the groups that the API server adds; without a name nobody knows."""
    if not user:
        return UNKNOWN
    known = ["system:authenticated", *groups]
    if user.startswith(SERVICE_ACCOUNT):
        namespace = user.removeprefix(SERVICE_ACCOUNT).partition(":")[0]
        known += ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    return Maker("named", UserInfo(user, tuple(dict.fromkeys(known))))


def review_manifests(
    policies: Policies,
    documents: list[ObjectDocument],
    more: list[ObjectDocument],
    *,
    maker: Maker,
    namespace: str,
    own: str,
) -> ManifestReport:
    """Judge every object of `documents`; `more` are further PriorityClasses and Namespaces of the cluster.

    Objects that name no namespace lie in `namespace`; `own` is giveway's. What cannot be read hides no other verdict.
    Of objects of other kinds the pod templates are judged that stand in them, and the classes that they name.
    """
    more, documents = [*map(_checked, more)], [*map(_checked, documents)]
    lookup = objects_of(document for document in (*more, *documents) if not document.problem)
    course, report = _Course(Judge(policies, lookup), lookup, maker, namespace, own), ManifestReport()
    report.warnings = [warning for document in (*more, *documents) for warning in document.warnings]
    for document in (*(document for document in more if document.problem), *documents):
        verdict = course.verdict(document)
        if isinstance(verdict, str):
            report.passed_over[verdict] = report.passed_over.get(verdict, 0) + 1
        else:
            report.judged.append(verdict)
    for what, they in ((CLASSES, "PriorityClasses do not exist"), (NAMESPACES, "namespaces have no labels")):
        if lacking := sorted(name for kind, name in course.unsure if kind == what):
            report.assumed.append(f"these {they}: {names(lacking)}")
    return report


def _checked(document: ObjectDocument) -> ObjectDocument:
    """The document as the API server reads it, where null is absent; with a problem if it would not be read."""
    if document.problem:
        return document
    problem = ""
    try:
        document = document._replace(content=_without_nulls(document.content))
        msgspec.convert(document.metadata, ObjectMeta)
        _encode((document.kind, document.metadata))
        typed(document)
    except msgspec.ValidationError as error:
        problem = f"{document.place}: metadata: {error}; texts such as `y`, `on` and `5` need quotes"
    except ObjectsError as error:
        problem = str(error)
    except (OverflowError, RecursionError, UnicodeEncodeError) as error:
        return ObjectDocument(document.where, "", {}, document.line, f"{document.place}: cannot be read: {error}")
    if not problem and not document.content.get("apiVersion"):
        problem = f"{document.place}: not a Kubernetes object: `apiVersion` is missing"
    return document._replace(problem=problem)


def _without_nulls(value: Any, field: str = "") -> Any:
    """A value without null, which is absent in a field, and an empty text in a map of texts."""
    if isinstance(value, list):
        return [_without_nulls(part) for part in value]
    if not isinstance(value, dict):
        return value
    if field in _MAPS:
        return {key: "" if part is None else part for key, part in value.items()}
    return {key: _without_nulls(part, key) for key, part in value.items() if part is not None}


class _Course:
    """The course of one review: `unsure` has what was asked for and is not among the objects."""

    def __init__(self, judge: Judge, lookup: Lookup, maker: Maker, namespace: str, own: str) -> None:
        self._judge, self._lookup, self._maker = judge, lookup, maker
        self._namespace, self._own = namespace, own
        self.unsure: set[tuple[str, str]] = set()

    def verdict(self, document: ObjectDocument) -> ManifestVerdict | str:
        """What the policies say of an object, or why it is not judged."""
        metadata = document.metadata
        verdict = ManifestVerdict(document.where, document.kind, "", _text(metadata.get("name")), line=document.line)
        if document.problem:
            verdict.problem = document.problem
            return verdict
        group, plural = _PLURALS.get(document.kind, ("", ""))
        plural = plural if group == document.group else ""
        lies_in = "" if plural == "priorityclasses" else _text(metadata.get("namespace")) or self._namespace
        pods = [] if plural else list(_pods(document))
        if not plural and not pods:
            return f"{document.kind}: no rule is about it"
        namespace = self._lookup.namespace(lies_in) or Namespace(metadata=ObjectMeta(name=lies_in))
        if lies_in and not in_reach([namespace], self._own):
            return f"in namespace {lies_in}, about which giveway is not asked"
        name, verdict.namespace = verdict.name, lies_in
        verdict.name = name or f"{_text(metadata.get('generateName'))}*"
        if plural:
            judged = self._judged(document.content, plural, lies_in, name, self._maker)
            verdict.said, verdict.problem = list(judged.said), judged.problem
            return verdict
        for pod, bare in pods:
            without = {said.rule for said in self._judged(bare, "pods", lies_in, "", _CONTROLLER).said} if bare else ()
            for said in self._judged(pod, "pods", lies_in, "", _CONTROLLER).said:
                told = Said(said.rule, said.verdict, f"its pods, when they are made: {said.message}")
                if said.rule not in without and told not in verdict.said:
                    verdict.said.append(told)
        return verdict if verdict.said else f"{document.kind}: its pods are judged when they are made"

    def _judged(self, content: dict[str, Any], plural: str, namespace: str, name: str, maker: Maker) -> Judged:
        try:
            metadata = {**_part(content, "metadata"), **({"namespace": namespace} if namespace else {})}
            existing = Existing(_encode({**content, "metadata": metadata}), plural, namespace, name)
            judged = self._judge.judge(existing, maker, settled=None)
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
            return Judged(problem=f"cannot be read: {error}")
        self.unsure |= judged.unsure
        return judged


def _pods(document: ObjectDocument) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    """The pods of which an object of any kind tells, as far as it tells.

    What has containers below `spec` is a pod template. Of others that name a class nothing else is known, so the same
    pod without the class comes with it: what a rule says of both, it does not say of the class.
    """
    owner = {"apiVersion": document.content["apiVersion"], "kind": document.kind, "name": "owner", "uid": ""}
    metadata = {"generateName": "pod-", "ownerReferences": [{**owner, "controller": True}]}
    bare = {"metadata": metadata, "spec": {"containers": []}}
    waiting: list[Any] = list(document.content.values())
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        if not isinstance(part, dict):
            continue
        if isinstance(_part(part, "spec").get("containers"), list):
            yield {"metadata": {**_part(part, "metadata"), **metadata}, "spec": part["spec"]}, None
            continue
        waiting += part.values()
        for name in _classes(part):
            yield {**bare, "spec": {"containers": [], "priorityClassName": name}}, bare


def _classes(part: dict[str, Any]) -> Iterator[str]:
    """The classes that a mapping names: one as `priorityClassName`, or one for each part as `priorityClassNames`."""
    for field, value in part.items():
        if field.lower().endswith("priorityclassname"):
            yield from filter(None, [_text(value)])
        elif field.lower().endswith("priorityclassnames") and isinstance(value, dict):
            yield from filter(None, map(_text, value.values()))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _part(value: dict[str, Any], key: str) -> dict[str, Any]:
    part = value.get(key)
    return part if isinstance(part, dict) else {}
