"""What the API server says when it says no: its `Status` objects as one exception."""

from collections.abc import Awaitable
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

NO_ANSWER = 0
"""`ApiError.status` if no answer came: a write may or may not have happened."""
UNDECODABLE = "Undecodable"
"""`ApiError.reason` if an answer is not of the shape that was asked for."""

_EXCERPT = 300


@dataclass(eq=False)
class ApiError(Exception):
    """A request that did not succeed.

    `status` is the HTTP status (NO_ANSWER if none came), `reason` Kubernetes' one-word reason ("Conflict",
    "NotFound", ...; "Timeout" or "Unreachable" if no answer came), `retry_after` seconds or None. `continue_token` goes
    on with a list that has expired (410), from where it stopped, with the objects that are there now.
    """

    status: int
    reason: str
    message: str
    _: KW_ONLY
    details: dict[str, Any] | None = None
    retry_after: float | None = None
    continue_token: str = ""

    def __str__(self) -> str:
        return f"{self.status or 'no answer'} {self.reason}: {self.message}"

    @property
    def throttled(self) -> bool:
        """Whether the server has too much to do, whatever was asked (docs/kubernetes-behaviour.md K16).

        API Priority and Fairness answers with plain text; what
        refuses one request sends a `Status`.
        """
        return self.status == 429 and not self.reason and self.details is None

    def causes(self) -> list[str]:
        """The reasons in `details.causes`, such as `DisruptionBudget`."""
        return [str(cause.get("reason", "")) for cause in (self.details or {}).get("causes") or ()]


async def unless_absent(asked: Awaitable[T], *absent: int) -> T | None:
    """The answer; None for one of these statuses, by default 404. Raises other ApiErrors."""
    try:
        return await asked
    except ApiError as error:
        if error.status in (absent or (404,)):
            return None
        raise


class _Status(msgspec.Struct):
    """The part of a `Status` object that tells what happened."""

    kind: str = ""
    reason: str = ""
    message: str = ""
    details: dict[str, Any] | None = None
    code: int = 0
    metadata: dict[str, Any] | None = None


_STATUS = msgspec.json.Decoder(_Status)


def status_error(body: bytes, *, http_status: int = 0, retry_after: str | None = None) -> ApiError:
    """The error a `Status` body stands for; a body that is none (from a proxy, say) is quoted.

    `http_status` is the response's, left out for an ERROR event of a
    watch; `retry_after` the header as sent.
    """
    try:
        status = _STATUS.decode(body)
    except msgspec.DecodeError:
        status = _Status()
    if status.kind != "Status":
        text = body[:_EXCERPT].decode(errors="replace").strip()
        return ApiError(http_status, "", text or "no explanation", retry_after=_seconds(retry_after))
    return ApiError(
        http_status or status.code,
        status.reason,
        status.message,
        details=status.details,
        retry_after=_seconds(retry_after) or _seconds((status.details or {}).get("retryAfterSeconds")),
        continue_token=(status.metadata or {}).get("continue", ""),
    )


def _seconds(value: Any) -> float | None:
    try:
        return max(0.0, float(value)) or None
    except (TypeError, ValueError):
        return None
