"""One review: the request as it came, decoded as far as rules look at it, and the answer that is made of it."""

import copy
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from webhook.kube.bounded import bounded
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.policy.evaluation.request import UserInfo
from webhook.policy.evaluation.rules import BUILTIN, Verdict
from webhook.policy.model.rules import Enforcement

T = TypeVar("T")
Json = dict[str, Any]

API_VERSION = "admission.k8s.io/v1"
MOST_VALUES = 300_000
"""Values of a review that is decoded. An object of 1.5 MiB, as etcd takes, has about 100 000; an update has two."""
LONGEST_UID = 128
"""Characters; those of an API server have 36."""
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises."""
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_USUAL_PLACE = re.compile(rb'"request"\s*:\s*\{\s*"uid"\s*:\s*"([ !#-~]{1,128})"')
"""Where the API server writes the uid; read this way only from a body that does not decode."""
_BEGINNING = 4096
"""Bytes of a body in which it is looked for."""


@dataclass(eq=False)
class BadReviewError(Exception):
    """A body that is no AdmissionReview, which is a 400; `uid` is the request's if it could be read.

    `rule` names the built-in rule by which a review is refused that an API server may well have sent, because of what
    a tenant put into its object. An error would let it pass if `failurePolicy` is Ignore.
    """

    message: str
    uid: str = ""
    rule: str = ""


class ObjectView(msgspec.Struct, rename="camel"):
    """Part of an object as admission reads it; null and absent are the same."""


class OwnerView(ObjectView):
    """An ownerReference, as far as rules read it."""

    kind: str | None = None
    name: str | None = None
    controller: bool | None = None


class MetadataView(ObjectView):
    """The metadata that rules of this package read."""

    name: str | None = None
    generate_name: str | None = None
    sent_labels: dict[str, str] | None = msgspec.field(default=None, name="labels")
    sent_annotations: dict[str, str] | None = msgspec.field(default=None, name="annotations")
    deletion_timestamp: str | None = None
    owner_references: list[OwnerView] | None = None

    @property
    def labels(self) -> dict[str, str]:
        """Its labels, if it has any."""
        return self.sent_labels or {}

    @property
    def annotations(self) -> dict[str, str]:
        """Its annotations, if it has any."""
        return self.sent_annotations or {}

    @property
    def has_controller(self) -> bool:
        """Whether a controller made the object, or its maker says so."""
        return any(owner.controller for owner in self.owner_references or ())


class SchedulingGroupView(ObjectView):
    """Which PodGroup a pod belongs to."""

    pod_group_name: str | None = None


class PodSpecView(ObjectView):
    """A pod's priority, as far as it is filled in, and its group."""

    priority: int | None = None
    priority_class_name: str | None = None
    preemption_policy: str | None = None
    scheduling_group: SchedulingGroupView | None = None
    node_name: str | None = None


class PodView(ObjectView):
    """A pod, a pod template, or a PodGroup, whose priority stands in the same fields.

    Rules without expressions are given no more of a pod: a field that a new rule reads is a new field here.
    """

    sent_metadata: MetadataView | None = msgspec.field(default=None, name="metadata")
    sent_spec: PodSpecView | None = msgspec.field(default=None, name="spec")

    @property
    def metadata(self) -> MetadataView:
        """Its metadata; empty if it has none."""
        return self.sent_metadata or MetadataView()

    @property
    def spec(self) -> PodSpecView:
        """Its spec; empty if it has none."""
        return self.sent_spec or PodSpecView()


class _Resource(ObjectView):
    resource: Annotated[str, msgspec.Meta(min_length=1)]
    group: str = ""


_NULL = msgspec.Raw(b"null")


class _Request(ObjectView):
    """The envelope; the objects in it are decoded by kind, later, and mostly in part."""

    uid: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_UID)]
    resource: _Resource
    sub_resource: str | None = None
    operation: str | None = None
    namespace: str | None = None
    name: str | None = None
    user_info: UserInfo | None = None
    object: msgspec.Raw = _NULL
    old_object: msgspec.Raw = _NULL
    dry_run: bool | None = None


class _AdmissionReview(ObjectView):
    kind: Literal["AdmissionReview"]
    api_version: str
    request: _Request


_json: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_review = msgspec.json.Decoder(_AdmissionReview)
_parts = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TYPED: dict[type[Any], msgspec.json.Decoder[Any]] = {
    type_: msgspec.json.Decoder(type_) for type_ in (PodView, PriorityClass)
}


class Review:
    """One request to judge, and its `answer`.

    Pods are by far the most of them, and of a pod admission mostly reads a dozen fields: the objects are kept as
    they came, and decoded in full only when `object` or `old_object` is asked for; `raw` is the AdmissionRequest
    without them. What is no AdmissionReview raises BadReviewError where it is read, which names the field.
    """

    def __init__(self, body: bytes, request: _Request) -> None:
        self._body = body
        self._object, self._old = request.object, request.old_object
        self._pod: PodView | None = None
        self._old_pod: PodView | None = None
        self.answer = Answer()
        self.uid = request.uid
        of = request.resource
        self.kind = self.group, self.resource = of.group, of.resource
        self.subresource = request.sub_resource or ""
        self.operation = request.operation or ""
        self.namespace = request.namespace or ""
        self.name = request.name or ""
        self.user = request.user_info or UserInfo()
        self.dry_run = bool(request.dry_run)
        self.has_object = self._object != _NULL
        self.has_old = self._old != _NULL

    @property
    def going(self) -> bool:
        """Whether the object is being deleted; the API server lets no new one say so (`rest.BeforeCreate`)."""
        return self.operation != "CREATE" and bool(self.pod.metadata.deletion_timestamp)

    @property
    def shown_name(self) -> str:
        """The object's name for people: `PREFIX*` as long as `generateName` made none."""
        if self.name or not self.has_object:
            return self.name
        with suppress(BadReviewError):
            metadata = self.pod.metadata
            prefix = metadata.generate_name
            return metadata.name or (f"{prefix}*" if prefix else "")
        return ""

    @property
    def pod(self) -> PodView:
        """The object as a pod."""
        self._pod = self._pod or self.typed(PodView)
        return self._pod

    @property
    def old_pod(self) -> PodView:
        """The pod as it was; empty at CREATE."""
        self._old_pod = self._old_pod or self.typed(PodView, old=True)
        return self._old_pod

    @cached_property
    def object(self) -> Json:
        """The object as JSON data."""
        return self._whole(self._object, "object")

    @cached_property
    def old_object(self) -> Json | None:
        """The object as it was, as JSON data; None at CREATE."""
        return self._whole(self._old, "oldObject") if self.has_old else None

    @cached_property
    def raw(self) -> Json:
        """The AdmissionRequest as JSON data, without its objects, which take 25 times their bytes."""
        fields = _parts.decode(_parts.decode(self._body)["request"])
        for key in ("object", "oldObject"):
            fields.pop(key, None)
        return {key: self._read(_json, value, key) for key, value in fields.items()}

    def typed(self, type_: type[T], *, old: bool = False) -> T:
        """The object, now or before (empty if none)."""
        decoder: msgspec.json.Decoder[T] = _TYPED[type_]
        if not old:
            return self._read(decoder, self._object, "object")
        return self._read(decoder, self._old, "oldObject") if self.has_old else type_()

    def as_created(self, obj: Json, resource: str) -> "Review":
        """The review of what a template in this one makes; it has the same answer."""
        try:
            pod = msgspec.convert(obj, PodView)
        except msgspec.ValidationError as error:
            raise _unreadable("the pod template of request.object", error, self.uid) from None
        made = copy.copy(self)
        vars(made).update(operation="CREATE", resource=resource, has_old=False)
        vars(made).update(_pod=pod, _old_pod=PodView(), object=obj, old_object=None)
        return made

    def _whole(self, raw: msgspec.Raw, field: str) -> Json:
        decoded = self._read(_json, raw, field)
        if not isinstance(decoded, dict):
            raise BadReviewError(f"request.{field} is not an object", uid=self.uid)
        return decoded

    def _read(self, decoder: msgspec.json.Decoder[T], raw: msgspec.Raw | bytes, field: str) -> T:
        try:
            return decoder.decode(raw)
        except UNREADABLE as error:
            raise _unreadable(f"request.{field}", error, self.uid) from None


def enveloped(request: Any) -> Json:
    """The AdmissionReview of an AdmissionRequest, its keys in the order of an API server."""
    return {"kind": "AdmissionReview", "apiVersion": API_VERSION, "request": request}


def decode(body: bytes) -> Review:
    """Read an AdmissionReview. Raises BadReviewError, with the uid if it can be read.

    Nothing is decoded of one with more than MOST_VALUES values: a small value takes 50 times its bytes.
    """
    if not body or body.isspace():
        raise BadReviewError("the body is empty; an AdmissionReview was expected")
    if len(body) > MOST_VALUES and values(body) > MOST_VALUES:
        text = f"the review has more than {MOST_VALUES} values, so giveway refuses it unread; make the object smaller"
        raise BadReviewError(text, uid=uid_of(body), rule="size")
    try:
        review = _review.decode(body)
    except UNREADABLE as error:
        raise _unreadable("the body is no AdmissionReview", error, uid_of(body)) from None
    if review.api_version != API_VERSION:
        text = f"apiVersion is {bounded(review.api_version)!r}; only {API_VERSION} is served"
        text += " (set admissionReviewVersions: [v1] in the webhook configuration)"
        raise BadReviewError(text, review.request.uid)
    return Review(body, review.request)


def values(body: bytes) -> int:
    """How many values a body has, at most; those in texts count unless it would be too many."""
    number = sum(map(body.count, (b",", b"{", b"[")))
    texts = (body.count(b'"') - body.count(b'\\"')) // 2
    # At least every second text is a value, too
    if number > MOST_VALUES and texts <= 2 * MOST_VALUES:
        for text in _STRING.finditer(body):
            number -= sum(map(text[0].count, (b",", b"{", b"[")))
    return number


def uid_of(body: bytes) -> str:
    """The uid of a review by its usual place; empty without one there."""
    match = _USUAL_PLACE.search(body, 0, _BEGINNING)
    return match[1].decode() if match else ""


def _unreadable(what: str, error: Exception, uid: str) -> BadReviewError:
    """Why it is not read. An API server takes objects nested ten times as deep as here."""
    if isinstance(error, RecursionError):
        return BadReviewError(f"{what}: it is nested too deeply", uid, "depth")
    why = str(error).replace("`$", "`")
    return BadReviewError(f"{what}: {bounded(why)}", uid)


VIOLATED = ("rule", "warned", "wouldDeny", "excepted")
"""Those that refuse the request, warn, would refuse it (on trial under `audit`), and have an exception."""
Operation = Json
"""One operation of a JSON Patch: `op` (add, replace or remove), `path`, and `value` unless it removes."""


class Answer(msgspec.Struct, kw_only=True):
    """What becomes of a review, before it is written down.

    `code` other than 200 says that there is no verdict, and `message` why. `unsure` names the objects, as
    (resource, name), that the answer hinges on and that the cache may not know in their newest form: look them up
    live and review again before this answer is given.
    """

    code: int = 200
    message: str = ""
    patch: list[Operation] = []
    warnings: list[str] = []
    audit: dict[str, str] = {}
    verdicts: list[Verdict] = []
    unsure: set[tuple[str, str]] = set()
    refusals: list[str] = []
    """Why the rules refuse the request, for its author."""
    ids: dict[str, dict[str, None]] = {}
    """The ids of rules that are violated, by the field of the log line, one of VIOLATED."""

    @property
    def allowed(self) -> bool:
        """Whether the request passes."""
        return self.code == 200 and not self.refusals

    @property
    def verdict(self) -> str:
        """`allowed`, `patched`, `denied` or `error`, as metrics and logs count it."""
        if self.code != 200:
            return "error"
        if self.refusals:
            return "denied"
        return "patched" if self.patch else "allowed"

    def add(self, verdicts: Iterable[Verdict]) -> None:
        """Add what rules say: refusals, warnings under `warn`, audit annotations under `audit`."""
        silent: list[str] = []
        for verdict in verdicts:
            self.verdicts.append(verdict)
            if verdict.outcome == "allow":
                continue
            how, texts = "wouldDeny", silent
            if verdict.denies:
                how, texts = "rule", self.refusals
            elif verdict.warns:
                how, texts = "warned", self.warnings
            if verdict.outcome == "excepted":
                how = "excepted"
            self.ids.setdefault(how, {})[verdict.id] = None
            if how != "excepted" or verdict.warns:
                texts.append(say(verdict))
        if silent:
            self.audit["would-deny"] = "; ".join(silent)

    def deny(self, rule: str, message: str) -> None:
        """Refuse the request by a built-in rule."""
        self.add([Verdict(BUILTIN, rule, Enforcement.ENFORCE, "deny", message)])


def say(verdict: Verdict) -> str:
    """The text of a verdict, which names its rule."""
    return verdict.message if verdict.id in verdict.message else f"rule {verdict.id}: {verdict.message}"
