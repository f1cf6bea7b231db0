"""Who made an object that exists, as far as the object tells, and how rules that read the requester are judged then.

Kubernetes does not store who made an object. Of a pod with a controller it is known: a controller, so that `subjects`
say nothing of it (docs/policies.md, "Who asks"). Of a bare pod or a PriorityClass it is not. Then every test of the
requester is taken once as the one that refuses and once as the one that does not. A rule that refuses both times
refuses the object whoever made it; a rule that refuses only once cannot be judged after the fact.
"""

from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from webhook.admission.context import Context, Lookup
from webhook.admission.review import Answer, say
from webhook.admission.webhook import Phase, ask, review_of
from webhook.kube.json_patch import apply_json_patch
from webhook.kube.objects.meta import ObjectMeta
from webhook.kube.pods import WORKLOADS, controller_of
from webhook.policy.evaluation.engine import Engine
from webhook.policy.evaluation.request import CONTROLLER, UserInfo
from webhook.policy.model.match import RequestMatch
from webhook.policy.model.policies import Policies
from webhook.policy.model.priority import PriorityPolicy
from webhook.policy.model.rules import PriorityRule, Validate, reads_user

_MIRROR = "kubernetes.io/config.mirror"
_KUBE_SYSTEM = "system:serviceaccount:kube-system:"
_CONTROLLERS = {
    ("apps/v1", "DaemonSet"): "daemon-set-controller",
    ("apps/v1", "ReplicaSet"): "replicaset-controller",
    ("apps/v1", "StatefulSet"): "statefulset-controller",
    ("batch/v1", "Job"): "job-controller",
    ("v1", "ReplicationController"): "replication-controller",
}
"""Kubernetes' own controllers that make pods, by apiVersion and kind of what they make them for."""
_MAKES = {"cronjobs": "jobs", "deployments": "replicasets"}
"""Workloads that make others, of which pods are made."""
_OF_TEMPLATES = {f"{kind.lower()}s": controller for (_, kind), controller in _CONTROLLERS.items()}


class Maker(msgspec.Struct, frozen=True):
    """Who made an object. `kind` says what of them is known.

    "named": the user name. "controller": that a controller made it, but not by which name. "unknown": nothing.
    """

    kind: str
    user: UserInfo = UserInfo()


UNKNOWN = Maker("unknown")


def maker_of(pod: ObjectMeta, node: str) -> Maker:
    """Who made a pod: by its ownerReferences, or the kubelet if it is a mirror pod."""
    if _MIRROR in (pod.annotations or {}):
        return Maker("named", UserInfo(f"system:node:{node}", ("system:nodes", "system:authenticated")))
    owner = controller_of(pod)
    if owner is None:
        return UNKNOWN
    controller = _CONTROLLERS.get((owner.api_version, owner.kind))
    return Maker("controller", CONTROLLER) if controller is None else _named(controller)


def maker_of_template(plural: str) -> Maker:
    """Who makes the pods of a workload."""
    return _named(_OF_TEMPLATES[_MAKES.get(plural, plural)])


def _named(controller: str) -> Maker:
    return Maker("named", UserInfo(f"{_KUBE_SYSTEM}{controller}", CONTROLLER.groups))


def bounded(policies: Policies, *, refuses: bool, subjects: bool) -> Policies:
    """The policies with every test of the requester settled: as the one that refuses, or as the one that does not.

    Without `subjects` only expressions that read `request.userInfo` are settled.
    """
    changed = []
    for policy in policies.priority:
        conditions = tuple(condition for condition in policy.conditions if not reads_user(condition.expression))
        if not refuses and conditions != policy.conditions:
            continue  # there may be somebody it is not about
        rules = tuple(_rule(rule, subjects=subjects, refuses=refuses) for rule in policy.rules)
        settled = msgspec.structs.replace(policy, conditions=conditions, rules=rules)
        changed.append(settled if not subjects else _strict(settled) if refuses else _lenient(settled))
    return msgspec.structs.replace(policies, priority=tuple(filter(None, changed)))


def _strict(policy: PriorityPolicy) -> PriorityPolicy:
    """The policy as its subjects apply to whoever it is hardest on."""
    exclude = None if policy.exclude is None or policy.exclude.subjects is not None else policy.exclude
    exceptions = tuple(exception for exception in policy.exceptions if exception.match.subjects is None)
    return msgspec.structs.replace(policy, match=_without(policy.match), exclude=exclude, exceptions=exceptions)


def _lenient(policy: PriorityPolicy) -> PriorityPolicy | None:
    """The policy as its subjects apply to whoever it is easiest on; None if there may be somebody it is not about."""
    exclude = policy.exclude and _without(policy.exclude)
    if policy.match.subjects is not None or (exclude != policy.exclude and exclude == RequestMatch()):
        return None
    exceptions = tuple(msgspec.structs.replace(row, match=_without(row.match)) for row in policy.exceptions)
    # One by subjects alone then names nobody in particular, so its rules refuse nobody for sure.
    let_in = {rule for exception in exceptions if exception.match == RequestMatch() for rule in exception.rules}
    rules = tuple(rule for rule in policy.rules if rule.name not in let_in)
    return msgspec.structs.replace(policy, exclude=exclude, rules=rules, exceptions=exceptions)


def _rule(rule: PriorityRule, *, subjects: bool, refuses: bool) -> PriorityRule:
    """The rule with its tests of the requester settled. What it tests is read off its declaration."""
    declaration = rule.declaration
    if any(map(reads_user, declaration.expressions)):
        body = Validate(expression="false" if refuses else "true", resources=tuple(sorted(declaration.about)))
        return PriorityRule(name=rule.name, source=rule.source, enforcement=rule.enforcement, validate=body)
    if not subjects or not declaration.rights:
        return rule
    rights = {}
    for right, alternatives in declaration.rights.items():
        kept = [row for row in alternatives if row.subjects is None] if refuses else alternatives
        rights[right] = tuple(map(_without, kept))
    name, body = rule.body
    return msgspec.structs.replace(rule, **{name: msgspec.structs.replace(body, **rights)})


def _without(right: Any) -> Any:
    return msgspec.structs.replace(right, subjects=None)


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
        plain: tuple[Context, ...] = (Context(Engine(policies), lookup),)
        self._contexts = {"named": plain, "controller": plain, "unknown": plain}
        for kind in ("controller", "unknown"):
            ways = [bounded(policies, refuses=refuses, subjects=kind == "unknown") for refuses in (True, False)]
            if not all(way == policies for way in ways):
                self._contexts[kind] = tuple(Context(Engine(way), lookup) for way in ways)

    def judge(self, existing: Existing, maker: Maker, settled: Collection[tuple[str, str]] | None = ()) -> Judged:
        """Judge one object. What is `settled` need not be looked up live: if the lookup lacks it, it is not there.

        None settles everything. Raises msgspec.DecodeError if it is no JSON object, RecursionError if it is too deep.
        """
        sent = msgspec.structs.replace(existing, raw=_as_sent(existing.raw, existing.plural))
        answers = [_ask(context, sent, maker.user, settled) for context in self._contexts[maker.kind]]
        unsure = frozenset[tuple[str, str]]().union(*(answer.unsure for answer in answers))
        if failed := next((answer.message for answer in answers if answer.code != 200), ""):
            return Judged(problem=failed, unsure=unsure)
        # What one answer says; of two, what both say, and for the rest that it cannot be judged
        said = [{entry.rule: entry for entry in _said(answer)} for answer in answers]
        both = said[0].keys() & said[-1].keys()
        rules = dict.fromkeys(rule for by_rule in said for rule in by_rule)
        agreed = (said[0][rule] if rule in both else Said(rule, CANNOT_BE_JUDGED, _BY_MAKER) for rule in rules)
        return Judged(tuple(agreed), unsure=unsure)


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


def _ask(context: Context, sent: Existing, user: UserInfo, settled: Collection[tuple[str, str]] | None) -> Answer:
    """The answer to the object as it was sent: of validation, after mutation if there is one for its kind."""

    def answer_in(phase: Phase, raw: bytes) -> Answer:
        body = review_of(KINDS[sent.plural][1], msgspec.Raw(raw), user, namespace=sent.namespace, name=sent.name)
        return ask(context, phase, body)

    if sent.plural not in _MUTATED:
        return answer_in("validate", sent.raw)
    mutated, raw = answer_in("mutate", sent.raw), sent.raw
    if mutated.code != 200 or (settled is not None and mutated.unsure.difference(settled)):
        return mutated
    if mutated.patch:
        raw = _encode(apply_json_patch(_whole.decode(raw), mutated.patch))
    answer = answer_in("validate", raw)
    answer.unsure |= mutated.unsure
    return answer


def _said(answer: Answer) -> Iterable[Said]:
    for verdict in answer.verdicts:
        said = "refused" if verdict.denies else "warned" if verdict.warns else "audited" if verdict.violated else ""
        if said:
            yield Said(verdict.id, said, say(verdict))
