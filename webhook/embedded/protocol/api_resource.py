"""What is known of a resource before any object of it exists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

__all__ = ["CREATE", "CRUD", "WITHOUT_COLLECTION", "ApiResource"]

CRUD = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
WITHOUT_COLLECTION = ("create", "delete", "get", "list", "patch", "update", "watch")
CREATE = ("create",)


@dataclass(frozen=True)
class ApiResource:
    """One row: how a resource is named, and what is special about it."""

    group: str
    plural: str
    kind: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    sub: tuple[str, ...] = ()
    """Sub-resources: `status`, `scale`, `finalize`, or one with a hook in `ApiServer.subresources`."""
    hash: str = ""
    generation: bool = False
    """Whether `metadata.generation` counts the changes of what is not status."""
    graceful: bool = False
    """Whether DELETE waits for a grace period (pods)."""
    returns_deleted: bool = False
    """Whether DELETE answers with the object rather than a Status."""
    unconditional: bool = True
    """Whether PUT may leave out the resourceVersion."""
    create_on_put: bool = False
    fields: Mapping[str, str] | None = None
    """Field selectors beyond metadata.name and metadata.namespace: name to path, where they differ."""
    verbs: tuple[str, ...] = CRUD
    storage: str = ""
    """Where its objects are kept; two rows with the same storage are two versions of one thing."""
    version: str = "v1"

    @cached_property
    def api_version(self) -> str:
        """`group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def qualified(self) -> str:
        """`plural.group`, as in error texts."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def singular(self) -> str:
        """The kind in lower case."""
        return self.kind.lower()

    @cached_property
    def key(self) -> str:
        """The name of its place in the store."""
        return self.storage or self.qualified

    @cached_property
    def prefix(self) -> bytes:
        """The start of an object's JSON, before its first own field."""
        return f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}",'.encode()

    @cached_property
    def root(self) -> str:
        """The URL of its group and version."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"

    @property
    def stored(self) -> bool:
        """Whether objects are kept, rather than answered at once such as a SubjectAccessReview."""
        return self.verbs != CREATE
