"""The API server's own policies: who enforces, and whether they are what the policies say."""

from collections.abc import Iterator

from webhook.inspection.cluster_findings import ClusterFinding, finding
from webhook.inspection.observed import CONFIGURATIONS, NATIVE, Observed
from webhook.native.compiler import compile_policies
from webhook.native.drift import Mode, drift, is_ours, mode
from webhook.native.objects import Object, Settings


def applied(observed: Observed) -> list[Object]:
    """Every admission policy and binding of the cluster; a list does not say the kind of its items."""
    return [{**obj, "kind": kind.kind} for kind in NATIVE for obj in observed.objects.get(kind.plural, ())]


def who_enforces(observed: Observed) -> Mode:
    """Webhook, native policies, both or nobody."""
    configurations = [configuration for plural in CONFIGURATIONS for configuration in observed.objects[plural]]
    return mode(applied(observed), configurations)


def in_step(observed: Observed) -> Iterator[ClusterFinding]:
    """The mode, if native policies are applied, and each object that is not what the policies say."""
    there = applied(observed)
    if not any(map(is_ours, there)):
        return
    yield finding("native-policies.mode", mode=who_enforces(observed))
    if who_enforces(observed) is Mode.BOTH:
        yield finding("native-policies.both")
    # A keeper compiles exceptions that hold for changes, `giveway compile` alone does not: the least drift counts
    reconciler = f"system:serviceaccount:{observed.own}:giveway-reconciler"
    mutates = any(obj["kind"].startswith("Mutating") and is_ours(obj) for obj in there)
    drifts = []
    for kept in (False, True):
        settings = Settings(namespace=observed.own, reconciler=reconciler, mutates=mutates, kept=kept)
        wanted = compile_policies(observed.policies, observed.classes.values(), settings, observed.now)
        drifts.append(drift(there, wanted.objects))
    for difference in min(drifts, key=len):
        how = "left-over" if difference.how == "left-over" else "drift"
        yield finding(f"native-policies.differs-{how}", difference=difference, kind=difference.kind.lower())
