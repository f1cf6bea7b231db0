"""Whether the policies that somebody applied are those in force: files with errors, removals that are held, others."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.admission.configmaps import POLICIES, held_back, mend
from webhook.component_base.own_names import IN_FORCE
from webhook.inspection.checks.installation import there
from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity, counted
from webhook.inspection.observed import Observed
from webhook.policy.files.sources import ConfigMapSource, load_source
from webhook.policy.removals import removals

_SHOWN = 3
_STAYS = "The policies in force stay as they are, and so does what they refuse; what was changed is not enforced."


def differing(observed: Observed) -> Iterator[ClusterFinding]:
    """Why the policies in force are not those of the ConfigMap that people apply; nothing if they are."""
    own = observed.own_state
    if observed.no_policies and there(observed):
        yield ClusterFinding(
            FindingSeverity.ERROR,
            f"No policies are in force: {observed.no_policies}.",
            "Nothing is judged, and checks that read the policies are left out.",
            "See the findings about the webhook above; --policies DIR looks by files of your own.",
        )
    if own.applied is None:
        return
    applied = f"ConfigMap {observed.own}/{POLICIES}"
    new = load_source(ConfigMapSource(POLICIES, own.applied.files))
    if new.errors:
        shown = "; ".join(f"{error.place}: {error.message}" for error in new.errors[:_SHOWN])
        more = f"; and {len(new.errors) - _SHOWN} more" if len(new.errors) > _SHOWN else ""
        yield ClusterFinding(
            FindingSeverity.ERROR,
            f"{applied} has {counted(len(new.errors), 'error')}: {shown}{more}.",
            _STAYS,
            "Correct them, try them with giveway lint, and apply them again.",
        )
        return
    if own.in_force is None or own.in_force.files == own.applied.files:
        return
    old = load_source(ConfigMapSource(IN_FORCE, own.in_force.files))
    if not old.errors and (held := held_back(removals(old.policies, new.policies), own.applied.allowed)):
        yield ClusterFinding(
            FindingSeverity.WARNING,
            f"A change of {applied} is held back: {mend(held, own.applied.allowed, new.policies)}.",
            _STAYS,
            "Say that it is meant with the annotation named here, or apply the policies that were there before"
            " (docs/policies.md).",
        )
        return
    # What was applied last and is stricter is only on its way
    later = own.in_force.written > own.applied.written
    if later and not old.errors and (wider := held_back(removals(new.policies, old.policies), own.applied.allowed)):
        shown = "; ".join(map(str, wider[:_SHOWN])) + (
            f"; and {len(wider) - _SHOWN} more" if len(wider) > _SHOWN else ""
        )
        yield ClusterFinding(
            FindingSeverity.WARNING,
            f"The policies in force (ConfigMap {observed.own}/{IN_FORCE}) give less protection than {applied}:"
            f" {shown}.",
            "It was written after the policies were applied: somebody changed it by hand.",
            "Look again in two minutes: the webhook puts it back, logs it, and counts it as"
            " giveway_policies_in_force_restored_total. If it stays, the webhook does not run.",
        )
        return
    outside = "giveway-webhook" not in own.deployments
    yield ClusterFinding(
        FindingSeverity.WARNING if outside else FindingSeverity.INFO,
        f"The policies in force (ConfigMap {observed.own}/{IN_FORCE}) are not those in {applied}.",
        "The webhook runs outside the cluster and reads the directory that it was started with."
        if outside
        else "A change takes about a minute to reach the pods, when the kubelet refreshes their files.",
        "Put the files into that directory." if outside else "Look again in two minutes; then at the webhook's log.",
    )
