"""People without cluster-wide rights, by impersonation, which an administrator may do on any cluster."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tests.inspection.command import RBAC
from webhook.kube.errors import ApiError


def user(name: str) -> dict[str, str]:
    """A person, or whoever is impersonated, as the subject of a right."""
    return {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name}


def group(name: str) -> dict[str, str]:
    """Everybody of a group, as the subject of a right."""
    return {**user(name), "kind": "Group"}


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
    bindings = f"{RBAC}/namespaces/{where}/rolebindings" if where else f"{RBAC}/clusterrolebindings"
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role or name}
    made = {f"{RBAC}/clusterroles": {"rules": list(rules)}} if rules else {}
    for path, body in {**made, bindings: {"roleRef": ref, "subjects": subjects}}.items():
        with suppress(ApiError):
            await sandbox.client.delete(f"{path}/{name}")
        await sandbox.client.create(path, {"metadata": {"name": name}, **body})
        sandbox.cleans_up(f"{path}/{name}")
