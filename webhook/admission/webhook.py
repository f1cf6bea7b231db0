"""One review from bytes to bytes: decode, dispatch by resource, answer. Pure: no clock, no I/O, no request context."""

from binascii import b2a_base64
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from webhook.admission import classes, configmaps, mutating, validating
from webhook.admission.context import NAMESPACES, Context
from webhook.admission.review import API_VERSION, Answer, BadReviewError, Json, Review, decode, enveloped
from webhook.kube.bounded import bounded
from webhook.kube.pods import WORKLOADS
from webhook.policy.cel.program import AllowanceError
from webhook.policy.evaluation.request import UserInfo

Phase = Literal["mutate", "validate", "mutate-priority", "validate-priority"]
"""What is asked, which is the path of the URL as well. Those of `priority` do what the Priority plugin does."""
Handler = Callable[[Context, Review], None]

HANDLERS: dict[tuple[Phase, str, str, str], Handler] = {
    ("mutate", "", "pods", ""): mutating.mutate_pod,
    ("validate", "", "pods", ""): validating.validate_pod,
    ("mutate", "scheduling.k8s.io", "podgroups", ""): mutating.mutate_group,
    ("validate", "scheduling.k8s.io", "podgroups", ""): validating.validate_group,
    ("validate", "scheduling.k8s.io", "workloads", ""): validating.validate_group_templates,
    ("mutate-priority", "", "pods", ""): mutating.mutate_priority,
    ("validate-priority", "", "pods", ""): validating.validate_priority,
    ("validate", "", "pods", "ephemeralcontainers"): validating.validate_pod,
    ("validate", "", "pods", "resize"): validating.validate_pod,
    ("validate", "", "pods", "status"): validating.validate_status,
    ("validate", "", "pods", "binding"): validating.validate_binding,
    ("validate", "", "bindings", ""): validating.validate_binding,
    ("mutate", "scheduling.k8s.io", "priorityclasses", ""): mutating.mutate_class,
    ("validate", "scheduling.k8s.io", "priorityclasses", ""): classes.validate_class,
    ("mutate", "", "configmaps", ""): configmaps.mutate_config_map,
    ("validate", "", "configmaps", ""): configmaps.validate_config_map,
    **{("validate", group, resource, ""): validating.validate_workload for group, resource in WORKLOADS},
}
"""Who answers, by phase, group, resource and sub-resource. Others write nothing that rules read."""

HANDLED = frozenset((group, resource) for _, group, resource, _ in HANDLERS)
"""The groups and resources that some handler knows."""

RESOURCES: dict[str, tuple[str, str]] = {
    "ConfigMap": ("", "configmaps"),
    "Pod": ("", "pods"),
    "PodGroup": ("scheduling.k8s.io", "podgroups"),
    "PriorityClass": ("scheduling.k8s.io", "priorityclasses"),
    "Workload": ("scheduling.k8s.io", "workloads"),
    **{workload.kind: resource for resource, workload in WORKLOADS.items()},
}
"""Kind to group and plural of what the webhook judges."""
_REASONS = {
    400: "BadRequest",
    403: "Forbidden",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_NO_RULES = "giveway has no rules for {}; leave it out of the webhook configuration"
_WARNING_LENGTH, _WARNINGS = 256, 10
"""What the API server passes on of a warning, and how many a person reads."""
_AUDIT_LENGTH = 1024
_MESSAGE_LENGTH = 4096
"""Characters that a person reads of a refusal."""
_encode = msgspec.json.Encoder().encode


class Reviewed(msgspec.Struct, kw_only=True):
    """A review that was answered: the answer, and the body to send under HTTP status `code`.

    A refusal is an answer as well (200); another code says that there is no verdict, and failurePolicy decides.
    `asked` is the request, if it could be read, and `error` what a handler raised.
    """

    body: bytes
    answer: Answer
    uid: str = ""
    asked: Review | None = None
    error: Exception | None = None


def review(context: Context, phase: Phase, body: bytes) -> Reviewed:
    """Answer one AdmissionReview: what is no review is a 400, what goes wrong inside a 500.

    Raises only AllowanceError, if it may take longer than the context allows.
    """
    uid, asked = "", None
    error: Exception | None = None
    try:
        asked = decode(body)
        uid = asked.uid
        answer = _dispatch(context, phase, asked)
    except BadReviewError as bad:
        uid = bad.uid or uid
        if bad.rule and uid:
            return deny(uid, bad.rule, bad.message, asked)
        answer = Answer(code=400, message=bad.message)
    except AllowanceError:
        raise
    except Exception as raised:  # noqa: BLE001 - the API server gets a well-formed answer whatever happens here
        error = raised
        text = f"giveway failed on this review: {type(raised).__name__}"
        answer = Answer(code=500, message=f"{text}; its log has the details")
    return _reviewed(uid, answer, asked, error)


def review_of(
    kind: str,
    obj: Any,
    user: UserInfo | Mapping[str, Any],
    *,
    operation: str = "CREATE",
    old_object: Any = None,
    namespace: str = "",
    name: str = "",
    dry_run: bool = False,
) -> Json:
    """The AdmissionReview (v1) by which PolicyTests, scans, trials and simulations ask about an object.

    `obj` and `old_object` are JSON data or `msgspec.Raw`; `user` is the `userInfo`. A kind that is not in RESOURCES
    counts as one of the core group.
    """
    group, plural = RESOURCES.get(kind, ("", f"{kind.lower()}s"))
    request = {
        "uid": "giveway",
        "kind": {"group": group, "version": "v1", "kind": kind},
        "resource": {"group": group, "version": "v1", "resource": plural},
        "operation": operation,
        "namespace": namespace,
        "name": name,
        "userInfo": user,
        "object": obj,
        "oldObject": old_object,
        "dryRun": dry_run,
    }
    return enveloped(request)


def ask(context: Context, phase: Phase, body: Json) -> Answer:
    """What the webhook answers to a review."""
    return review(context, phase, _encode(body)).answer


def refuse(code: int, message: str, uid: str = "") -> Reviewed:
    """The answer to what was not looked at."""
    return _reviewed(uid, Answer(code=code, message=message))


def deny(uid: str, rule: str, message: str, asked: Review | None = None) -> Reviewed:
    """A refusal by a built-in rule of a review that was not read."""
    answer = Answer()
    answer.deny(rule, message)
    return _reviewed(uid, answer, asked)


def _dispatch(context: Context, phase: Phase, asked: Review) -> Answer:
    """Let the handler of this phase and resource answer, if there is one."""
    answer, operation = asked.answer, asked.operation
    handler = HANDLERS.get((phase, *asked.kind, asked.subresource))
    if handler is None:
        if asked.kind not in HANDLED:
            where = ".".join(filter(None, (asked.resource, asked.group)))
            answer.warnings.append(_NO_RULES.format(where))
        return answer
    if operation in ("CREATE", "UPDATE"):
        if not asked.has_object:
            raise BadReviewError(f"request.object is null in a {operation}", uid=asked.uid)
    elif operation != "DELETE" or handler is not classes.validate_class or not asked.has_old:
        return answer
    if asked.namespace and context.lookup.namespace(asked.namespace) is None:
        answer.unsure.add((NAMESPACES, asked.namespace))
    handler(context, asked)
    return answer


def _reviewed(uid: str, answer: Answer, asked: Review | None = None, error: Exception | None = None) -> Reviewed:
    """The answer with the AdmissionReview to send, without empty fields."""
    code, message, audit = answer.code, answer.message, answer.audit
    if answer.refusals:
        code, message = 403, "; ".join(answer.refusals)
        audit = {**audit, "denied-by": ",".join(answer.ids["rule"])}
    response: Json = {"uid": uid, "allowed": code == 200}
    if code != 200:
        said = bounded(message, _MESSAGE_LENGTH)
        response["status"] = {"code": code, "reason": _REASONS[code], "message": said}
    elif answer.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = b2a_base64(_encode(answer.patch), newline=False).decode("ascii")
    if answer.warnings:
        first = answer.warnings[:_WARNINGS]
        response["warnings"] = [_line(text, _WARNING_LENGTH) for text in first]
    if audit:
        response["auditAnnotations"] = {key: _line(text, _AUDIT_LENGTH) for key, text in audit.items()}
    body = _encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})
    return Reviewed(body=body, answer=answer, uid=uid, asked=asked, error=error)


def _line(text: str, length: int) -> str:
    """A header takes one line."""
    if len(text) <= length and text.isprintable():
        return text
    return bounded(" ".join(text[: 4 * length].split()), length)
