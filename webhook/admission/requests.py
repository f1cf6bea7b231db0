"""From a review to what the policy engine judges."""

from __future__ import annotations

from typing import Any

from webhook.admission.decode import Review
from webhook.admission.lookup import Context
from webhook.policy.request import Request

__all__ = ["request_for"]


def request_for(context: Context, review: Review, data: dict[str, Any]) -> Request:
    """The request without its priority, which admission fills in once it is resolved."""
    namespace = review.namespace
    return Request(
        operation=review.operation,
        resource=review.resource,
        object=data,
        old_object=review.old_object,
        namespace=namespace,
        name=review.name,
        user=review.user,
        namespace_object=context.lookup.namespace(namespace) if namespace else None,
        raw=review.raw,
        dry_run=review.dry_run,
    )
