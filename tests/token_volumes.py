"""The volume that the API server gives every pod for its ServiceAccount's token: its name is each pod's own."""

from __future__ import annotations

import zlib
from typing import Any


def token_volume(pod: str) -> dict[str, Any]:
    """The token's volume of the pod of that name, as the ServiceAccount admission plugin writes it."""
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]
    name = f"kube-api-access-{zlib.crc32(pod.encode()):08x}"
    return {"name": name, "projected": {"sources": sources, "defaultMode": 420}}
