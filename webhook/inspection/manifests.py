"""Manifests before they are applied: what the policies would say of each, if it were created.

They are judged by the webhook's own functions (`webhook.inspection.judge`), over the PriorityClasses and Namespaces
that are among them or were given besides. Whoever applies them may be named; else a rule that decides by who asks
cannot be judged, as in a scan. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from webhook.admission.context import CLASSES, NAMESPACES
from webhook.admission.objectfiles import ObjectDocument, objects_from
from webhook.inspection.judge import KINDS, Existing, Judge, Said
from webhook.inspection.makers import UNKNOWN, Maker
from webhook.inspection.scope import in_reach
from webhook.kube.objects import Namespace, ObjectMeta
from webhook.policy.evaluation.request import UserInfo
from webhook.policy.model import Policies
from webhook.policy.model.match import SERVICE_ACCOUNT

__all__ = ["ManifestReport", "ManifestVerdict", "author", "review_manifests"]

_PLURALS = {kind: (group, plural) for plural, (group, kind) in KINDS.items()}
_SHOWN = 10
"""Names that a list shows."""
_encode = msgspec.json.Encoder().encode


class ManifestVerdict(msgspec.Struct, rename="camel"):
    """What the policies say of one object. `problem` says why there is no verdict."""

    file: str
    kind: str
    namespace: str
    name: str
    said: list[Said] = []
    problem: str = ""

    @property
    def title(self) -> str:
        """`Deployment team-a/web`."""
        return f"{self.kind} {f'{self.namespace}/' if self.namespace else ''}{self.name}"

    def has(self, verdicts: Iterable[str]) -> bool:
        """Whether some rule said one of these."""
        return any(said.verdict in verdicts for said in self.said)


class ManifestReport(msgspec.Struct, rename="camel"):
    """All of them, in their order; `passed_over` counts what is not judged, by the reason.

    `assumed` says what was not known of the cluster, and what was taken for true instead.
    """

    judged: list[ManifestVerdict] = []
    passed_over: dict[str, int] = {}
    assumed: list[str] = []


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

    Objects that name no namespace lie in `namespace`; `own` is giveway's. Raises ObjectsError for a PriorityClass or
    Namespace that cannot be read.
    """
    lookup = objects_from((document.where, document.content) for document in (*more, *documents))
    judge, report, unsure = Judge(policies, lookup), ManifestReport(), set[tuple[str, str]]()
    for document in documents:
        where = _PLURALS.get(document.kind)
        if where is None or document.group != where[0]:
            _count(report.passed_over, f"{document.kind}: no rule is about it")
            continue
        metadata = document.content.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        lies_in = "" if where[1] == "priorityclasses" else _text(metadata.get("namespace")) or namespace
        name = _text(metadata.get("name")) or f"{_text(metadata.get('generateName'))}*"
        if lies_in and not in_reach([lookup.namespace(lies_in) or Namespace(metadata=ObjectMeta(name=lies_in))], own):
            _count(report.passed_over, f"in namespace {lies_in}, about which giveway is not asked")
            continue
        verdict = ManifestVerdict(document.where, document.kind, lies_in, name)
        report.judged.append(verdict)
        try:
            raw = _encode({**document.content, "metadata": {**metadata, **({"namespace": lies_in} if lies_in else {})}})
            existing = Existing(raw, where[1], lies_in, _text(metadata.get("name")))
            judged = judge.judge(existing, maker, unsure)
            while not judged.unsure <= unsure:
                unsure |= judged.unsure
                judged = judge.judge(existing, maker, unsure)
        except (msgspec.DecodeError, RecursionError) as error:
            verdict.problem = f"cannot be read: {error}"
            continue
        verdict.said, verdict.problem = list(judged.said), judged.problem
    report.assumed = _assumed(unsure)
    return report


def _assumed(unsure: set[tuple[str, str]]) -> list[str]:
    """What the answers hinge on that is not among the objects."""
    classes = sorted(name for what, name in unsure if what == CLASSES)
    namespaces = sorted(name for what, name in unsure if what == NAMESPACES)
    texts = [f"these PriorityClasses do not exist: {_listed(classes)}"] if classes else []
    return texts + ([f"these namespaces have no labels: {_listed(namespaces)}"] if namespaces else [])


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(counts: dict[str, int], what: str) -> None:
    counts[what] = counts.get(what, 0) + 1
