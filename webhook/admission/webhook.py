"""One review from bytes to bytes: decode, dispatch by resource, answer. Pure: no clock, no I/O, no request context."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from webhook.admission import classes, configmaps, mutating, pods, protecting
from webhook.admission.decode import BadReviewError, Review, decode
from webhook.admission.lookup import NAMESPACES, Context
from webhook.admission.respond import Answer, complete, failure
from webhook.kube.workloads import WORKLOADS
from webhook.policy.cel.program import AllowanceError

__all__ = ["Phase", "Reviewed", "deny", "refuse", "review"]

Phase = Literal["mutate", "validate"]
Handler = Callable[[Context, Review, Answer], None]

HANDLERS: dict[tuple[Phase, str, str, str], Handler] = {
    ("mutate", "", "pods", ""): mutating.mutate_pod,
    ("validate", "", "pods", ""): pods.validate_pod,
    ("validate", "", "pods", "status"): protecting.validate_status,
    ("validate", "", "pods", "binding"): protecting.validate_binding,
    ("validate", "", "bindings", ""): protecting.validate_binding,
    ("mutate", "scheduling.k8s.io", "priorityclasses", ""): mutating.mutate_class,
    ("validate", "scheduling.k8s.io", "priorityclasses", ""): classes.validate_class,
    ("mutate", "", "configmaps", ""): configmaps.mutate_config_map,
    ("validate", "", "configmaps", ""): configmaps.validate_config_map,
    **{("validate", group, resource, ""): pods.validate_workload for group, resource in WORKLOADS},
}
"""Who answers, by phase, group, resource and sub-resource. Other sub-resources write no metadata of their object."""

_KNOWN = {(group, resource) for _, group, resource, _ in HANDLERS}


class Reviewed(msgspec.Struct, kw_only=True):
    """A review that was answered: the answer, and the body to send under HTTP status `code`.

    A refusal is an answer as well (200); another code says that there is no verdict, and failurePolicy decides.
    `error` is what a handler raised.
    """

    body: bytes
    answer: Answer
    uid: str = ""
    review: Review | None = None
    error: Exception | None = None

    @property
    def code(self) -> int:
        """The HTTP status to answer with."""
        return self.answer.code


def review(context: Context, phase: Phase, body: bytes) -> Reviewed:
    """Answer one AdmissionReview: what is no review is a 400, what goes wrong inside a 500.

    Raises only AllowanceError, if the expressions may take longer than the context allows: ask again elsewhere.
    """
    uid, asked = "", None
    error: Exception | None = None
    try:
        asked = decode(body)
        uid = asked.uid
        answer = _dispatch(context, phase, asked)
    except BadReviewError as bad:
        uid = bad.uid or uid
        answer = Answer() if bad.rule and uid else failure(bad.code, bad.message)
        if bad.rule and uid:
            answer.deny(bad.rule, bad.message)
    except AllowanceError:
        raise
    except Exception as raised:  # noqa: BLE001 - the API server gets a well-formed answer whatever happens here
        error = raised
        answer = failure(500, f"giveway failed on this review: {type(raised).__name__}; its log has the details")
    return Reviewed(body=complete(uid, answer), answer=answer, uid=uid, review=asked, error=error)


def refuse(code: int, message: str, uid: str = "") -> Reviewed:
    """The answer to what was not even looked at: too large, of the wrong type, too late, not ready."""
    answer = failure(code, message)
    return Reviewed(body=complete(uid, answer), answer=answer, uid=uid)


def deny(uid: str, rule: str, message: str) -> Reviewed:
    """A refusal by a built-in rule of a review that was not read, of which no more than its uid is known."""
    answer = Answer()
    answer.deny(rule, message)
    return Reviewed(body=complete(uid, answer), answer=answer, uid=uid)


def _dispatch(context: Context, phase: Phase, asked: Review) -> Answer:
    """Let the handler of this phase and resource answer; nothing is said of what no rule is about."""
    answer = Answer()
    if asked.kind not in _KNOWN:
        where = f"{asked.resource}.{asked.group}" if asked.group else asked.resource
        answer.warnings.append(f"giveway has no rules for {where}; leave it out of the webhook configuration")
        return answer
    handler = HANDLERS.get((phase, *asked.kind, asked.subresource))
    if handler is None or asked.operation not in ("CREATE", "UPDATE"):
        return answer
    if not asked.has_object:
        raise BadReviewError(f"request.object is null in a {asked.operation}", uid=asked.uid)
    if asked.namespace and context.lookup.namespace(asked.namespace) is None:
        answer.unsure.add((NAMESPACES, asked.namespace))
    handler(context, asked, answer)
    return answer
