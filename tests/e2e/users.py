"""People without cluster-wide rights, by impersonation, which an administrator may do on any cluster."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from webhook.kube.errors import ApiError

PIPELINE = ("--as", "e2e-pipeline")
"""Who writes the policies, and may do nothing else."""
TENANT = ("--as", "e2e-tenant")
"""Somebody who may edit one namespace."""


async def may_edit(sandbox: Any, who: tuple[str, ...], namespace: str) -> None:
    """Give a user the ClusterRole `edit` in a namespace, until the test is over."""
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
    name, user = f"{sandbox.id}-editor", {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": who[1]}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    with suppress(ApiError):
        await sandbox.client.delete(f"{path}/{name}")
    await sandbox.client.create(path, {"metadata": {"name": name}, "roleRef": role, "subjects": [user]})
    sandbox.cleans_up(f"{path}/{name}")
