"""An answer, and the one place that makes a response of it: uid, code, patch type, warnings and audit annotations."""

from __future__ import annotations

from binascii import b2a_base64
from typing import Any

import msgspec

from webhook.admission.decode import API_VERSION
from webhook.admission.patching import Operation
from webhook.policy.evaluation.engine import Verdict
from webhook.policy.evaluation.shield import BUILTIN
from webhook.policy.model import Enforcement

__all__ = ["Answer", "complete", "failure", "say"]

_REASONS = {
    400: "BadRequest",
    403: "Forbidden",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_WARNING_LENGTH, _WARNINGS = 256, 10
"""What the API server passes on of a warning, and how many a person reads."""
_AUDIT_LENGTH = 1024
_encode = msgspec.json.Encoder().encode


class Answer(msgspec.Struct, kw_only=True):
    """What became of a review, before it is written down.

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

    @property
    def allowed(self) -> bool:
        """Whether the request passes."""
        return self.code == 200 and not (self.verdicts and any(verdict.denies for verdict in self.verdicts))

    @property
    def verdict(self) -> str:
        """`allowed`, `patched`, `denied` or `error`, as metrics and logs count it."""
        if not self.allowed:
            return "denied" if self.code == 200 else "error"
        return "patched" if self.patch else "allowed"

    @property
    def rules(self) -> list[str]:
        """The rules that refuse the request, each once."""
        return list(dict.fromkeys(verdict.id for verdict in self.verdicts if verdict.denies))

    @property
    def warned(self) -> list[str]:
        """The rules that let the request pass with a warning, each once."""
        return list(dict.fromkeys(row.id for row in self.verdicts if row.warns and row.outcome != "excepted"))

    @property
    def would_deny(self) -> list[str]:
        """The rules under `audit` that would refuse the request, each once."""
        return list(dict.fromkeys(verdict.id for verdict in self.verdicts if verdict.silent))

    @property
    def excepted(self) -> list[str]:
        """The rules that are violated and let the request in by an exception, each once."""
        return list(dict.fromkeys(verdict.id for verdict in self.verdicts if verdict.outcome == "excepted"))

    def deny(self, rule: str, message: str) -> None:
        """Refuse the request by a built-in rule."""
        self.verdicts.append(Verdict(BUILTIN, rule, Enforcement.ENFORCE, "deny", message))


def failure(code: int, message: str) -> Answer:
    """The answer to what could not be judged; `code` is an HTTP status."""
    return Answer(code=code, message=message)


def complete(uid: str, answer: Answer) -> bytes:
    """The AdmissionReview to send: JSON, with exactly the fields that say something."""
    allowed = answer.allowed
    response: dict[str, Any] = {"uid": uid, "allowed": allowed}
    if not allowed:
        if answer.code != 200:
            response["status"] = {"code": answer.code, "reason": _REASONS[answer.code], "message": answer.message}
        else:
            texts = [say(verdict) for verdict in answer.verdicts if verdict.denies]
            response["status"] = {"code": 403, "reason": _REASONS[403], "message": "; ".join(texts)}
    if answer.patch and allowed:
        response["patchType"] = "JSONPatch"
        response["patch"] = b2a_base64(_encode(answer.patch), newline=False).decode("ascii")
    if answer.warnings:
        response["warnings"] = [_shorten(text, _WARNING_LENGTH) for text in answer.warnings[:_WARNINGS]]
    audit = answer.audit
    if not allowed and answer.code == 200:
        audit = {**audit, "denied-by": ",".join(answer.rules)}
    if audit:
        response["auditAnnotations"] = {key: _shorten(text, _AUDIT_LENGTH) for key, text in audit.items()}
    return _encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


def say(verdict: Verdict) -> str:
    """The text of a verdict, which names its rule."""
    return verdict.message if verdict.id in verdict.message else f"rule {verdict.id}: {verdict.message}"


def _shorten(text: str, length: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"
