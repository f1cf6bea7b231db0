"""Who enforces the policies: the modes of `giveway install`, and the native policies that two of them need.

docs/native-policies.md tells what holds in each.
"""

import hashlib
import json
import re
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from webhook.admission.context import Context, Objects
from webhook.admission.review import say
from webhook.admission.webhook import ask, review_of
from webhook.component_base.own_names import SYSTEM_NAMESPACE, reconciler_user
from webhook.installation.applier import ObjectApplier, key_of, within
from webhook.installation.install import TAKES_EFFECT, policies_in
from webhook.installation.kustomize import ManifestsError
from webhook.kube import resources
from webhook.kube.bounded import bounded
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.json_patch import apply_json_patch
from webhook.kube.objects.cluster_scoped import Namespace, PriorityClass
from webhook.native.compiler import compile_policies
from webhook.native.drift import is_ours
from webhook.native.objects import Settings
from webhook.native.sink import Inexpressible
from webhook.policy.evaluation.engine import Engine
from webhook.policy.evaluation.rules import Verdict
from webhook.policy.files.loading import load_texts, texts_of
from webhook.policy.model.policies import Policies
from webhook.policy.shapes.findings import PolicyError
from webhook.registration.entries import EXEMPT

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
    is none. Raises ApiError, PolicyError, UnfitClusterError for a cluster that cannot have native policies, and
    ManifestsError if they are `alone` and leave something out.
    """
    await cluster.require_version(native=True)
    key = policies_in(cluster.namespace)
    there = None if own else await cluster.get(key)
    files: dict[str, str] = (there or next(obj for obj in objects if key_of(obj) == key)).get("data") or {}
    loaded = load_texts(*texts_of(key.name, files))
    if loaded.errors:
        raise PolicyError(loaded.findings)
    classes, _ = await cluster.client.list(resources.PRIORITY_CLASS.path(), PriorityClass)
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
    for kind in (resources.MUTATING_ADMISSION_POLICY, resources.VALIDATING_ADMISSION_POLICY):
        names = [obj["metadata"]["name"] for obj in compiled.objects if obj["kind"] == kind.kind]
        if names:
            rule = {"apiGroups": [kind.group], "resources": [kind.plural], "verbs": ["get", "update"]}
            named.append({**rule, "resourceNames": names})
    made = []
    for obj in objects:
        if is_ours(obj) or (not keeper and obj["metadata"]["name"] == _KEEPER):
            continue
        if obj["kind"] == "ClusterRole" and obj["metadata"]["name"] == _KEEPER:
            made.append({**obj, "rules": [rule for rule in obj["rules"] if not rule.get("resourceNames")] + named})
        elif obj["kind"] == "Deployment" and obj["metadata"]["name"] == _KEEPER:
            digest = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
            template = obj["spec"]["template"]
            annotations = {**(template["metadata"].get("annotations") or {}), "checksum/policies": digest}
            metadata = {**template["metadata"], "annotations": annotations}
            made.append({**obj, "spec": {**obj["spec"], "template": {**template, "metadata": metadata}}})
        else:
            made.append(obj)
    return [*made, *compiled.objects], compiled.inexpressible, loaded.policies


_TRIED = "giveway-trial"
"""The name of the pod that is tried."""
_MOST = 12
"""Namespaces in which a pod is tried."""
_BY_GIVEWAY = re.compile(r"'giveway-[^']*'.* denied request: (.*)", re.DOTALL)


class Trials(NamedTuple):
    """The namespaces in which a pod was tried, and by namespace what the API server says that the policies do not.

    Where something other than giveway refuses the pod nothing is known.
    """

    tried: list[str]
    problems: dict[str, str]


async def try_pods(
    client: Client, policies: Policies, seconds: float = 5 * TAKES_EFFECT, *, own: str = SYSTEM_NAMESPACE
) -> Trials:
    """Try a pod in one namespace for each way in which the policies apply; again for so long if it goes wrong.

    `own` is giveway's own namespace, of which native policies say nothing. Raises ApiError, also if a dry run gets no
    verdict.
    """
    classes, _ = await client.list(resources.PRIORITY_CLASS.path(), PriorityClass)
    namespaces, _ = await client.list(resources.NAMESPACE.path(), Namespace)
    kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    user = await client.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", kind)
    others = [each for each in namespaces if each.metadata.name not in ("kube-system", own)]
    expected = _expected(policies, classes, others, user["status"]["userInfo"])
    answers = dict[str, str | None]()

    async def agree() -> bool:
        answers.update({name: await _try(client, name, refusals) for name, refusals in expected.items()})
        return not any(answers.values())

    await within(seconds, agree)
    tried = [name for name, problem in answers.items() if problem is not None]
    return Trials(tried, {name: problem for name, problem in answers.items() if problem})


def _expected(
    policies: Policies, classes: Iterable[PriorityClass], namespaces: Iterable[Namespace], user: Json
) -> dict[str, list[str]]:
    """What the policies say against the pod, by namespace: the first of those in which the same rules apply."""
    lookup, engine = Objects(classes, namespaces), Engine(policies)
    expected: dict[tuple[object, ...], tuple[str, list[str]]] = {}
    for namespace in namespaces:
        name = namespace.metadata.name
        if EXEMPT in (namespace.metadata.labels or {}):
            continue
        trace: list[Verdict] = []
        asked = partial(review_of, "Pod", user=user, namespace=name, name=_TRIED, dry_run=True)
        context, obj = Context(engine, lookup, trace), _pod(name)
        obj = apply_json_patch(obj, ask(context, "mutate", asked(obj)).patch)
        refusals = [say(row) for row in ask(context, "validate", asked(obj)).verdicts if row.denies]
        expected.setdefault(tuple((row.id, row.message) for row in trace), (name, refusals))
    return dict(list(expected.values())[:_MOST])


async def _try(client: Client, namespace: str, refusals: list[str]) -> str | None:
    """What is wrong with the answer to a pod; empty if nothing is, None if somebody else refuses it."""
    try:
        await client.create(resources.POD.path(namespace), _pod(namespace), dryRun="All")
    except ApiError as error:
        if error.status not in (400, 403, 422):
            raise
        natively = _BY_GIVEWAY.search(error.message)
        if natively is None or refusals:
            return None if natively is None else ""
        return f"a pod is refused, and the policies say nothing against it: {bounded(natively[1].strip(), 500)}"
    return f"a pod is let in, and the policies say: {bounded(refusals[0], 500)}" if refusals else ""


def _pod(namespace: str) -> Json:
    """A pod that most policies and Pod Security Standards let in."""
    container = {
        "name": "trial",
        "image": "registry.k8s.io/pause:3.10",
        "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"cpu": "1m", "memory": "1Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    safe = {"runAsNonRoot": True, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"containers": [container], "securityContext": safe}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": _TRIED, "namespace": namespace}, "spec": spec}
