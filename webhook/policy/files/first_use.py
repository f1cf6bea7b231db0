"""The first use of a policy set: all of it is used once before it replaces another. Pure; the time is given.

Loading finds what is written wrongly. What raises only in use is found here, with the place of the part that does it,
and not by the process that has taken the set into use.
"""

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from webhook.policy.evaluation.engine import Engine
from webhook.policy.evaluation.reads import reads_on_update
from webhook.policy.evaluation.request import CLASSES, GROUPS, PODS, PolicyRequest
from webhook.policy.evaluation.rules import excepted_text
from webhook.policy.model.policies import Policies
from webhook.policy.reports import exceptions, next_end, rights_of
from webhook.policy.shapes.findings import Reader, Severity
from webhook.policy.shapes.yaml_nodes import SourcePosition

Use = Callable[[Policies, float], object]
Uses = Iterable[Use]
INSTEAD = "leave it out, or give another value"
"""What would be right for whoever wrote what raises."""
_EXAMPLE = {"metadata": {"name": "example", "namespace": "example"}, "spec": {}}


def use_once(policies: Policies, readers: dict[str, Reader], now: float, uses: Uses = ()) -> Policies:
    """The policies, if all that they say can be used at `now` (seconds since the epoch) and at the ends they name.

    `uses` is what is made of them elsewhere; each is called with the policies and `now`. Of others there are none: each
    part that raises is noted as an error at its place.
    """
    parts = list(_parts(policies))
    whole = _failure(policies, now, uses) if parts else None
    if whole is None:
        return policies
    failed = [(source, error) for part, source in parts if (error := _failure(part, now, uses)) is not None]
    for source, error in failed or [(parts[-1][1], whole)]:
        text = f"this cannot be used: {type(error).__name__}: {error}; {INSTEAD}"
        readers[source.file].at(Severity.ERROR, source, text)
    return Policies()


def _parts(policies: Policies) -> Iterator[tuple[Policies, SourcePosition]]:
    """The exceptions, rules and PreemptionPolicies, each as a set of its own, and where it stands."""
    for policy in policies.priority:
        for exception in policy.exceptions:
            yield Policies(priority=(replace(policy, rules=(), exceptions=(exception,)),)), exception.source
        for rule in policy.rules:
            yield Policies(priority=(replace(policy, rules=(rule,), exceptions=()),)), rule.source
    for other in policies.preemption:
        yield Policies(preemption=(other,)), other.source


def _failure(policies: Policies, now: float, uses: Uses) -> Exception | None:
    """What using the policies raises, if it does."""
    try:
        for use in (_use, *uses):
            use(policies, now)
    except Exception as error:  # noqa: BLE001 - whatever it is, the set is not taken into use
        return error
    return None


def _use(policies: Policies, now: float) -> None:
    engine = Engine(policies)
    for resource in (PODS, CLASSES, GROUPS):
        asked = PolicyRequest(operation="CREATE", resource=resource, object=_EXAMPLE, now=now)
        engine.judge(asked)
        engine.judge(replace(asked, operation="UPDATE", old_object=_EXAMPLE))
    reads_on_update(policies)
    rights_of(policies)
    excepting = [exception for policy in policies.priority for exception in policy.exceptions]
    for at in (now, *(exception.until for exception in (*excepting[:1], *excepting[-1:]))):
        exceptions(policies, at)
        next_end(policies, at)
    for exception in excepting:
        excepted_text("", exception, "")
    for policy in policies.preemption:
        policy.limits.at(now)
        own = (policy.schedule, policy.protection.schedule, *(rate.schedule for rate in policy.limits.rates.values()))
        for schedule in filter(None, own):  # at `now`, and at the beginning and the end of the window next to it
            for at in filter(None, (now, schedule.begins(now), schedule.ends(now))):
                schedule.ends(at)
                schedule.when(at, now)
                schedule.next_window(at)
