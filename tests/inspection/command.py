"""The `giveway` command as a process of its own."""

import asyncio
import os
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any, NamedTuple

from tests.processes import start_giveway
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.kube.client import Client

RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Result(NamedTuple):
    """How a command ended."""

    exit_code: int
    stdout: str
    stderr: str


async def giveway(*arguments: Any, seconds: float = 60, **environment: str) -> Result:
    """Run it to its end."""
    env = {**os.environ, "COLUMNS": "120", **environment}
    process = await start_giveway(*arguments, stdout=PIPE, stderr=PIPE, env=env)
    output, errors = await asyncio.wait_for(process.communicate(), seconds)
    assert process.returncode is not None
    return Result(process.returncode, output.decode(), errors.decode())


async def user(cluster: EmbeddedCluster, admin: Client, role: str, rules: Any = None, *, within: str = "") -> Path:
    """The kubeconfig of a user who has a role, made of `rules` if given: everywhere, or `within` a namespace."""
    if rules is not None:
        await admin.create(f"{RBAC}/clusterroles", {"metadata": {"name": role}, "rules": rules})
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": "user"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "user"}],
    }
    path = f"{RBAC}/namespaces/{within}/rolebindings" if within else f"{RBAC}/clusterrolebindings"
    await admin.create(path, binding)
    return cluster.write_kubeconfig("user", cluster.add_user("user"))
