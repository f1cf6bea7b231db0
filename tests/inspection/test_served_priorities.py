"""Resources with priorities of their own: found in OpenAPI documents, and told by `giveway doctor`."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.inspection.observing import found, observed
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.inspection.checks.native import unjudged
from webhook.inspection.served_priorities import ServedPriorities, priority_fields, read_served_priorities
from webhook.kube.errors import ApiError

CLASS = {"priorityClassName": {"type": "string"}}
VOLCANO = ("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups")


def struct(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def served(
    kind: tuple[str, str, str, str], schema: dict[str, Any], *, verb: str = "post", **more: Any
) -> dict[str, Any]:
    """The document of one kind: group, version, kind and plural; `more` are schemas that it refers to."""
    group, version, name, plural = kind
    gvk = {"group": group, "version": version, "kind": name}
    path = f"/apis/{group}/{version}/namespaces/{{namespace}}/{plural}"
    root = {**schema, "x-kubernetes-group-version-kind": [gvk]}
    operation = {verb: {"x-kubernetes-group-version-kind": gvk}}
    return {"paths": {path: operation}, "components": {"schemas": {"com.example.Root": root, **more}}}


@pytest.mark.parametrize(
    ("schema", "fields"),
    [
        pytest.param(struct(spec=struct(**CLASS)), {"spec.priorityClassName"}, id="in the spec"),
        pytest.param(struct(**CLASS), {"priorityClassName"}, id="at the top"),
        pytest.param(
            struct(spec=struct(roles={"type": "array", "items": struct(**CLASS)})),
            {"spec.roles[].priorityClassName"},
            id="in a list",
        ),
        pytest.param(
            struct(byName={"additionalProperties": struct(**CLASS)}), {"byName[].priorityClassName"}, id="in a map"
        ),
        pytest.param(
            struct(spec={"allOf": [{"$ref": "#/components/schemas/com.example.Spec"}]}),
            {"spec.priorityClassName", "spec.more.priorityClassName"},
            id="by reference, one that refers to itself",
        ),
        pytest.param(struct(spec=struct(containers={}, **CLASS)), set(), id="a pod's spec"),
        pytest.param(struct(spec=struct(tolerations={}, **CLASS)), set(), id="a part of a pod's spec"),
        pytest.param(struct(spec=struct(priority={})), set(), id="no class"),
        pytest.param({"x-kubernetes-preserve-unknown-fields": True}, set(), id="no schema"),
    ],
)
def test_where_a_class_is_named(schema, fields):
    """In whatever depth, unless pods are what has it."""
    again = {"$ref": "#/components/schemas/com.example.Spec"}
    more = {"com.example.Spec": struct(**CLASS, more=struct(**CLASS, again=again))}
    assert priority_fields(served(VOLCANO, schema, **more)) == ({f"podgroups.{VOLCANO[0]}": fields} if fields else {})


@pytest.mark.parametrize("plural", ["podgroups", "workloads"])
@pytest.mark.parametrize("version", ["v1alpha2", "v1"])
def test_what_giveway_judges_is_left_out(plural, version):
    """Kubernetes' own groups, in every version; a new resource beside them is told."""
    schema = struct(spec=struct(**CLASS))
    assert priority_fields(served(("scheduling.k8s.io", version, "Any", plural), schema)) == {}
    assert priority_fields(served(("scheduling.k8s.io", version, "New", "news"), schema)).keys() == {
        "news.scheduling.k8s.io"
    }


def test_what_nobody_can_make_is_left_out():
    """A resource that is only read gives nobody a priority."""
    assert priority_fields(served(VOLCANO, struct(**CLASS), verb="get")) == {}


class Documents:
    """A server's OpenAPI documents by path; a number is the status that it answers with, a text is sent as it is."""

    def __init__(self, **documents: Any) -> None:
        self.documents = documents

    async def get(self, path: str, as_: Any = None, **query: str) -> Any:
        if path == "/openapi/v3":
            paths = {name: {"serverRelativeURL": f"/openapi/v3/{name}?hash=AB"} for name in self.documents}
            return {"paths": paths}
        assert query == {"hash": "AB"}
        document = self.documents[path.removeprefix("/openapi/v3/")]
        if isinstance(document, int):
            raise ApiError(document, "Gone", "the server is away")
        return msgspec.Raw(document if isinstance(document, bytes) else msgspec.json.encode(document))


async def test_a_document_that_cannot_be_read_costs_no_other():
    """An extension API server that is away, or that says something else, is named; the rest is told."""
    good = served(VOLCANO, struct(spec=struct(**CLASS)))
    newer = served((VOLCANO[0], "v1", *VOLCANO[2:]), struct(spec=struct(queue=struct(**CLASS))))
    hostile = b'{"paths": ["priorityClassName"]}'
    both = Documents(a=503, b=good, c=hostile, d=b'{"x": "priorityClassName"', e=newer)
    read = await read_served_priorities(both)  # type: ignore[arg-type]  # what it asks of a client
    assert read.fields == {f"podgroups.{VOLCANO[0]}": ("spec.priorityClassName", "spec.queue.priorityClassName")}
    assert read.unread.keys() == {"a", "c", "d"}
    said = found(unjudged, observed(priorities=read))
    assert [severity for severity, _ in said] == ["warning", "not checked", "not checked", "not checked"]
    assert "podgroups.scheduling.volcano.sh" in said[0][1]
    assert "spec.queue.priorityClassName" in said[0][1]


@pytest.mark.parametrize("status", [403, 404, 500])
async def test_a_server_without_documents(status):
    """It is said that nothing was checked; a server that does not answer at all ends the command."""

    class Without:
        async def get(self, *_: Any, **__: Any) -> Any:
            raise ApiError(status, "Reason", "no such thing")

    read = await read_served_priorities(Without())  # type: ignore[arg-type]  # what it asks of a client
    assert found(unjudged, observed(priorities=read))[0][0] == "not checked"


async def test_kubernetes_itself_has_nothing_that_is_not_judged():
    """Pods, templates and workloads name classes, and each of them is judged."""
    async with EmbeddedCluster(nodes=0) as cluster, cluster.client() as admin:
        assert await read_served_priorities(admin) == ServedPriorities()
