"""`matchConditions` of admission webhooks: CEL over the AdmissionRequest, every one of which must hold."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from webhook.embedded.protocol.calls import Object
from webhook.policy.cel.program import CelError, CelRuntimeError, Inputs, compile_bool

__all__ = ["ConditionError", "conditions_hold"]


_compiled = lru_cache(maxsize=256)(compile_bool)


class ConditionError(Exception):
    """A condition that could not be evaluated while no other one was false."""


def conditions_hold(conditions: Iterable[tuple[str, str]], request: Object) -> bool:
    """Whether all conditions (name, expression) hold for an AdmissionRequest.

    One that is false decides; else one that fails raises ConditionError. `authorizer` is not among the variables.
    Size is no obstacle, as for an API server, whose bound is on the steps of an expression.
    """
    inputs = Inputs(lambda: _variables(request))
    failures = []
    for name, expression in conditions:
        try:
            if not _compiled(expression).evaluate(inputs):
                return False
        except (CelError, CelRuntimeError) as error:
            failures.append(f"match condition {name!r}: expression {expression!r} resulted in error: {error}")
    if failures:
        raise ConditionError("; ".join(failures))
    return True


def _variables(request: Object) -> Object:
    asked = {key: value for key, value in request.items() if key not in ("object", "oldObject")}
    return {
        "object": request["object"],
        "oldObject": request["oldObject"],
        "request": asked,
        "namespaceObject": None,
        "priorityClass": None,
    }
