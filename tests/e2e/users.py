"""People without cluster-wide rights, by impersonation, which an administrator may do on any cluster."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from webhook.kube.errors import ApiError

TENANT = ("--as", "e2e-tenant")
"""Somebody who may edit one namespace."""
_GROUP = "/apis/rbac.authorization.k8s.io/v1"


def user(name: str) -> dict[str, str]:
    """A person, or whoever is impersonated, as the subject of a right."""
    return {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name}


async def granted(
    sandbox: Any,
    name: str,
    subjects: list[dict[str, str]],
    *,
    rules: Sequence[Any] = (),
    role: str = "",
    where: str = "",
) -> None:
    """Give somebody these rules, or a ClusterRole, in a namespace or everywhere, until the test is over."""
    bindings = f"{_GROUP}/namespaces/{where}/rolebindings" if where else f"{_GROUP}/clusterrolebindings"
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role or name}
    made = {f"{_GROUP}/clusterroles": {"rules": list(rules)}} if rules else {}
    for path, body in {**made, bindings: {"roleRef": ref, "subjects": subjects}}.items():
        with suppress(ApiError):
            await sandbox.client.delete(f"{path}/{name}")
        await sandbox.client.create(path, {"metadata": {"name": name}, **body})
        sandbox.cleans_up(f"{path}/{name}")


async def may_edit(sandbox: Any, who: tuple[str, ...], namespace: str) -> None:
    """Give a user the ClusterRole `edit` in a namespace, until the test is over."""
    await granted(sandbox, f"{sandbox.id}-editor", [user(who[1])], role="edit", where=namespace)
