"""An object that exists, judged as if it were created again by who made it, by the webhook's own functions.

The object is taken back to what was sent once: without status, node and what the API server fills in. It goes through
mutation and validation as in a real request (`webhook.admission.webhook.review`), so a scan says what the webhook says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from webhook.admission.context import Context, Lookup
from webhook.admission.own_reviews import ask, review_of
from webhook.admission.review import Answer, say
from webhook.admission.webhook import Phase
from webhook.inspection.makers import Maker, bounded
from webhook.kube.json_patch import apply_json_patch
from webhook.kube.pods import WORKLOADS
from webhook.policy.evaluation.engine import Engine
from webhook.policy.evaluation.request import UserInfo
from webhook.policy.model.policies import Policies

CANNOT_BE_JUDGED = "cannot be judged"
"""The verdict of a rule that depends on who made the object, which nobody knows any more."""
MEANINGS = {
    "refused": "refused if made again",
    "warned": "would pass with a warning",
    "audited": "would pass: the rule is under audit",
    CANNOT_BE_JUDGED: "may be refused: the rule decides by who makes the object",
}
"""What verdicts mean for an object that exists."""
_BY_MAKER = "the rule decides by who makes the object, and a cluster does not store who that was"

_SERVER_SET = ("uid", "resourceVersion", "generation", "creationTimestamp", "selfLink")
KINDS = {plural: (group, workload.kind) for (group, plural), workload in WORKLOADS.items()} | {
    "pods": ("", "Pod"),
    "priorityclasses": ("scheduling.k8s.io", "PriorityClass"),
}
"""The kinds that are judged, by plural: group and kind."""
_MUTATED = ("pods", "priorityclasses")
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_whole = msgspec.json.Decoder(dict[str, Any])
_encode = msgspec.json.Encoder().encode


class Existing(msgspec.Struct, frozen=True):
    """An object as the API server sent it, with the plural of its kind."""

    raw: bytes
    plural: str
    namespace: str
    name: str


class Said(msgspec.Struct, frozen=True):
    """What one rule says of one object: "refused", "warned", "audited" or "cannot be judged", and the reason."""

    rule: str
    verdict: str
    message: str


class Judged(msgspec.Struct, frozen=True):
    """What the rules say of one object; `problem` says why there is no verdict, `unsure` what to look up live first."""

    said: tuple[Said, ...] = ()
    problem: str = ""
    unsure: frozenset[tuple[str, str]] = frozenset()


class Judge:
    """A set of policies over the cluster's classes and namespaces. Pure: it looks nothing up."""

    def __init__(self, policies: Policies, lookup: Lookup) -> None:
        self._plain = Context(Engine(policies), lookup)
        self._bounds = {
            "controller": self._contexts(policies, lookup, subjects=False),
            "unknown": self._contexts(policies, lookup, subjects=True),
        }

    def use(self, lookup: Lookup) -> None:
        """Judge by these objects from now on."""
        self._plain = self._plain.with_lookup(lookup)
        self._bounds = {
            kind: tuple(context.with_lookup(lookup) for context in contexts) for kind, contexts in self._bounds.items()
        }

    def judge(self, existing: Existing, maker: Maker, settled: Collection[tuple[str, str]] = ()) -> Judged:
        """Judge one object. What is `settled` need not be looked up live: if the lookup lacks it, it is not there.

        Raises msgspec.DecodeError if it is no JSON object, RecursionError if it is too deep.
        """
        sent = msgspec.structs.replace(existing, raw=_as_sent(existing.raw, existing.plural))
        bounds = () if maker.known else self._bounds[maker.kind]
        answers = [_ask(context, sent, maker.user, settled) for context in bounds or (self._plain,)]
        unsure = frozenset[tuple[str, str]]().union(*(answer.unsure for answer in answers))
        failed = next((answer.message for answer in answers if answer.code != 200), "")
        if failed:
            return Judged(problem=failed, unsure=unsure)
        # What one answer says; of two, what both say, and for the rest that it cannot be judged
        said = [{entry.rule: entry for entry in _said(answer)} for answer in answers]
        both = said[0].keys() & said[-1].keys()
        rules = dict.fromkeys(rule for by_rule in said for rule in by_rule)
        agreed = (said[0][rule] if rule in both else Said(rule, CANNOT_BE_JUDGED, _BY_MAKER) for rule in rules)
        return Judged(tuple(agreed), unsure=unsure)

    @staticmethod
    def _contexts(policies: Policies, lookup: Lookup, *, subjects: bool) -> tuple[Context, ...]:
        """The context that refuses and the one that does not; none if no rule reads the requester."""
        strict = bounded(policies, refuses=True, subjects=subjects)
        lenient = bounded(policies, refuses=False, subjects=subjects)
        if strict == lenient == policies:
            return ()
        return Context(Engine(strict), lookup), Context(Engine(lenient), lookup)


def _as_sent(raw: bytes, plural: str) -> bytes:
    """The object without what nobody sends: status, a pod's node, and metadata that the API server sets."""
    group, kind = KINDS[plural]
    members: dict[str, Any] = dict(_members.decode(raw))
    members.pop("status", None)
    metadata = _members.decode(members.get("metadata", b"{}"))
    members["metadata"] = {key: value for key, value in metadata.items() if key not in _SERVER_SET}
    if plural == "pods" and "spec" in members:
        members["spec"] = {key: value for key, value in _members.decode(members["spec"]).items() if key != "nodeName"}
    # The items of a list carry neither.
    version = f"{group}/v1" if group else "v1"
    return _encode({"apiVersion": version, "kind": kind, **members})


def _ask(context: Context, sent: Existing, user: UserInfo, settled: Collection[tuple[str, str]]) -> Answer:
    unsure: set[tuple[str, str]] = set()
    if sent.plural in _MUTATED:
        answer = _review(context, "mutate", sent, user)
        if answer.unsure.difference(settled) or answer.code != 200:
            return answer
        unsure = answer.unsure
        if answer.patch:
            patched = _encode(apply_json_patch(_whole.decode(sent.raw), answer.patch))
            sent = msgspec.structs.replace(sent, raw=patched)
    answer = _review(context, "validate", sent, user)
    answer.unsure |= unsure
    return answer


def _review(context: Context, phase: Phase, sent: Existing, user: UserInfo) -> Answer:
    _, kind = KINDS[sent.plural]
    body = review_of(kind, msgspec.Raw(sent.raw), user, namespace=sent.namespace, name=sent.name)
    return ask(context, phase, body)


def _said(answer: Answer) -> Iterable[Said]:
    for verdict in answer.verdicts:
        if verdict.denies:
            yield Said(verdict.id, "refused", say(verdict))
        elif verdict.warns:
            yield Said(verdict.id, "warned", say(verdict))
        elif verdict.silent:
            yield Said(verdict.id, "audited", say(verdict))
