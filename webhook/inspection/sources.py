"""Which policies an inspection goes by: files, or those in force in the cluster."""

from __future__ import annotations

from pathlib import Path

from webhook.kube.client import ApiError, Client
from webhook.kube.resources import CONFIG_MAP
from webhook.policy.files.loading import load_or_raise, load_texts
from webhook.policy.model import Policies
from webhook.policy.shapes.findings import PolicyError

__all__ = ["IN_FORCE", "NoPoliciesError", "read_policies"]

IN_FORCE = "giveway-policies-in-force"
"""The ConfigMap in which the webhook keeps the policies in force, as manifests/base names it."""
_SUFFIXES = (".yaml", ".yml")


class NoPoliciesError(Exception):
    """The policies in force cannot be read from the cluster; the text says why and what would help."""


async def read_policies(client: Client, directory: Path | None, namespace: str) -> Policies:
    """The policies of a directory, or without one those that the webhook keeps in `namespace`.

    Raises PolicyError for files with errors, NoPoliciesError if nothing is kept or it may not be read.
    """
    if directory is not None:
        return load_or_raise(directory)
    path = CONFIG_MAP.path(namespace, IN_FORCE)
    try:
        found = await client.get(path)
    except ApiError as error:
        if error.status == 404:
            raise NoPoliciesError(
                f"there is no ConfigMap {namespace}/{IN_FORCE}, in which the webhook keeps the policies in force:"
                " name the files with --policies DIR, or the namespace that giveway runs in with --namespace"
            ) from error
        if error.status == 403:
            raise NoPoliciesError(
                f"no right to get ConfigMap {namespace}/{IN_FORCE}, in which the webhook keeps the policies in force:"
                " name the files with --policies DIR"
            ) from error
        raise
    data = found.get("data") or {}
    texts = sorted((f"{IN_FORCE}/{name}", text) for name, text in data.items() if name.endswith(_SUFFIXES))
    loaded = load_texts(texts)
    if loaded.errors:
        raise PolicyError(loaded.findings)
    return loaded.policies
