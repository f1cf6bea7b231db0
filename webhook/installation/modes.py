"""Who enforces the policies: the modes of `giveway install`, and the native policies that two of them need.

docs/native-policies.md tells what holds in each.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from typing import Any

from webhook.component_base.own_names import reconciler_user
from webhook.installation.applier import ObjectApplier, key_of
from webhook.installation.install import policies_of
from webhook.installation.kustomize import ManifestsError, strategic_merge
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.resources import MUTATING_ADMISSION_POLICY, PRIORITY_CLASS, VALIDATING_ADMISSION_POLICY
from webhook.native.compiler import compile_policies
from webhook.native.drift import is_ours
from webhook.native.objects import Settings
from webhook.native.sink import Inexpressible
from webhook.policy.files.loading import load_source
from webhook.policy.files.sources import texts_of
from webhook.policy.model.policies import Policies
from webhook.policy.shapes.findings import PolicyError

Json = dict[str, Any]

WEBHOOK, BACKSTOP, NATIVE = "webhook", "backstop", "native"
"""The webhook alone; native policies beside it, which hold while it is away; native policies alone."""
COMPONENTS: dict[str, tuple[str, ...]] = {
    WEBHOOK: (),
    BACKSTOP: ("native-policies", "backstop"),
    NATIVE: ("native-policies", "native-only"),
}
"""The components of `manifests/` that make a mode of the base."""
STATIC = "static-entries"
"""The component without accounts that may change entries or native policies; so there is no keeper."""
_KEEPER = "giveway-native"


async def with_native_policies(
    cluster: ObjectApplier, objects: Sequence[Json], *, own: bool, alone: bool, keeper: bool = True
) -> tuple[list[Json], list[Inexpressible], Policies]:
    """The objects with native policies for those that will be in force, what cannot be said natively, and these.

    In force will be the policies among the objects if they are the installer's `own`; else those that the cluster
    has already, if it has any. They are compiled for the PriorityClasses that are there. The keeper may change the
    policies that were compiled and no others, and starts again when what it reads differs; without `keeper` there
    is none. Raises ApiError, PolicyError, TooOldError for a cluster that cannot have native policies, and
    ManifestsError if they are `alone` and leave something out.
    """
    await cluster.require_version(native=True)
    key = policies_of(objects)
    there = None if own else await cluster.get(key)
    files: dict[str, str] = (there or next(obj for obj in objects if key_of(obj) == key)).get("data") or {}
    loaded = load_source(texts_of(key.name, files))
    if loaded.errors:
        raise PolicyError(loaded.findings)
    classes, _ = await cluster.client.list(PRIORITY_CLASS.path(), PriorityClass)
    settings = Settings(namespace=key.namespace, reconciler=reconciler_user(key.namespace), kept=keeper)
    compiled = compile_policies(loaded.policies, classes, settings, time.time())
    if alone and compiled.lacks:
        texts = "".join(f"\n  - {inexpressible}" for inexpressible in compiled.lacks)
        raise ManifestsError(
            "nothing was applied: native policies cannot say all that the policies say, and without a webhook nobody"
            f" would enforce it; --mode backstop keeps the webhook:{texts}"
        )
    # The keeper's right to change them, by name; a rule without names would be a right to change all
    named = []
    for resource in (MUTATING_ADMISSION_POLICY, VALIDATING_ADMISSION_POLICY):
        names = [obj["metadata"]["name"] for obj in compiled.objects if obj["kind"] == resource.kind]
        if names:
            rule = {"apiGroups": [resource.group], "resources": [resource.plural], "verbs": ["get", "update"]}
            named.append({**rule, "resourceNames": names})
    made = []
    for obj in objects:
        if is_ours(obj) or (not keeper and obj["metadata"]["name"] == _KEEPER):
            continue
        if obj["kind"] == "ClusterRole" and obj["metadata"]["name"] == _KEEPER:
            made.append({**obj, "rules": [rule for rule in obj["rules"] if not rule.get("resourceNames")] + named})
        elif obj["kind"] == "Deployment" and obj["metadata"]["name"] == _KEEPER:
            digest = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
            annotations = {"metadata": {"annotations": {"checksum/policies": digest}}}
            made.append(strategic_merge(obj, {"spec": {"template": annotations}}))
        else:
            made.append(obj)
    return [*made, *compiled.objects], compiled.inexpressible, loaded.policies
