"""Server-side apply: who owns which field, what conflicts, and what goes with its owner."""

import pytest

from tests.clusters.embedded.bare import bare_server
from webhook.clusters.embedded.merging.fieldsets import decode, encode
from webhook.kube.errors import ApiError

PATH = "/apis/apps/v1/namespaces/n/deployments/d"
LABELS = {"app": "web"}


@pytest.fixture
def client():
    return bare_server().local(agent="test")


def configuration(replicas=None, labels=None, **containers):
    spec = {
        "selector": {"matchLabels": LABELS},
        "template": {
            "metadata": {"labels": LABELS},
            "spec": {"containers": [{"name": name, "image": image} for name, image in containers.items()]},
        },
    }
    metadata = {"name": "d", **({"labels": labels} if labels else {})}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": spec if replicas is None else {"replicas": replicas, **spec},
    }


async def apply(client, body, manager, path=PATH, **query):
    return await client.patch(path, body, kind="apply", fieldManager=manager, **query)


def owned(obj, manager):
    rows = [row for row in obj["metadata"]["managedFields"] if row["manager"] == manager]
    return rows[0]["fieldsV1"] if rows else None


async def test_apply_creates_and_owns_what_it_names(client):
    """What a configuration names is its manager's; defaults are nobody's."""
    created = await apply(client, configuration(replicas=2, c="nginx"), "one")
    assert created["spec"]["progressDeadlineSeconds"] == 600
    item = {".": {}, "f:image": {}, "f:name": {}}
    assert owned(created, "one") == {
        "f:spec": {
            "f:replicas": {},
            "f:selector": {},
            "f:template": {
                "f:metadata": {"f:labels": {"f:app": {}}},
                "f:spec": {"f:containers": {'k:{"name":"c"}': item}},
            },
        }
    }


async def test_apply_again_changes_nothing(client):
    """The same configuration twice is one change."""
    created = await apply(client, configuration(c="nginx"), "one")
    assert await apply(client, configuration(c="nginx"), "one") == created


async def test_conflict_names_manager_and_field(client):
    """Another manager's value is not overwritten unasked; all conflicts are named."""
    await apply(client, configuration(replicas=1, c="nginx"), "one")
    with pytest.raises(ApiError) as refusal:
        await apply(client, configuration(replicas=2, c="apache"), "two")
    assert (refusal.value.status, refusal.value.reason) == (409, "Conflict")
    assert refusal.value.message.startswith('Apply failed with 2 conflicts: conflict with "one" using apps/v1: .spec')
    fields = [cause["field"] for cause in refusal.value.details["causes"]]
    assert fields == [".spec.replicas", '.spec.template.spec.containers.{"name":"c"}.image']
    assert refusal.value.causes() == ["FieldManagerConflict"] * 2


async def test_force_takes_over(client):
    """With force the field changes hands."""
    await apply(client, configuration(replicas=1, c="nginx"), "one")
    forced = await apply(client, configuration(replicas=2, c="nginx"), "two", force=True)
    assert forced["spec"]["replicas"] == 2
    assert "f:replicas" not in owned(forced, "one")["f:spec"]
    assert "f:replicas" in owned(forced, "two")["f:spec"]


async def test_equal_values_are_shared(client):
    """Two managers may own a field as long as they agree; it stays until the last lets go."""
    await apply(client, configuration(replicas=2, c="nginx"), "one")
    await apply(client, configuration(replicas=2, c="nginx"), "two")
    left = await apply(client, configuration(c="nginx"), "one")
    assert left["spec"]["replicas"] == 2


async def test_what_is_no_longer_named_goes(client):
    """A label, or a container, that its only owner drops is removed."""
    await apply(client, configuration(labels={"a": "1", "b": "2"}, c="nginx", d="apache"), "one")
    left = await apply(client, configuration(labels={"b": "2"}, c="nginx"), "one")
    assert left["metadata"]["labels"] == {"b": "2"}
    assert [row["name"] for row in left["spec"]["template"]["spec"]["containers"]] == ["c"]


async def test_an_update_takes_a_field(client):
    """Whoever updates a field owns it; apply then conflicts with that."""
    await apply(client, configuration(replicas=1, c="nginx"), "one")
    patched = await client.patch(PATH, {"spec": {"replicas": 5}}, fieldManager="editor")
    assert owned(patched, "editor") == {"f:spec": {"f:replicas": {}}}
    with pytest.raises(ApiError, match='conflict with "editor" using apps/v1'):
        await apply(client, configuration(replicas=1, c="nginx"), "one")


async def test_status_is_applied_apart(client):
    """Apply to the status sub-resource owns status fields only."""
    await apply(client, configuration(c="nginx"), "one")
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "status": {"replicas": 3}}
    stored = await apply(client, body, "controller", f"{PATH}/status")
    assert stored["status"]["replicas"] == 3
    assert owned(stored, "controller") == {"f:status": {"f:replicas": {}}}


@pytest.mark.parametrize(
    ("change", "query", "text"),
    [
        ({"metadata": {"name": "e"}}, {"manager": "one"}, "does not match the name on the URL"),
        ({"metadata": {"name": "d", "managedFields": []}}, {"manager": "one"}, "metadata.managedFields must be nil"),
        ({}, {"manager": ""}, "fieldManager: Required value"),
    ],
    ids=["name", "managedFields", "manager"],
)
async def test_what_cannot_be_applied(client, change, query, text):
    """A configuration of another name, with managedFields, or of no manager is refused."""
    with pytest.raises(ApiError, match=text):
        await apply(client, {**configuration(c="nginx"), **change}, **query)


async def test_managed_fields_can_be_reset(client):
    """A client may set managedFields itself, as kubectl does when it moves from client-side apply."""
    created = await apply(client, configuration(replicas=1, c="nginx"), "one")
    rows = [{**row, "manager": "renamed"} for row in created["metadata"]["managedFields"]]
    patched = await client.patch(
        PATH, [{"op": "replace", "path": "/metadata/managedFields", "value": rows}], kind="json"
    )
    assert owned(patched, "renamed") == owned(created, "one")


def test_field_sets_are_written_and_read():
    """A set of fields survives being written."""
    fields = {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {'k:{"name":"c"}': {".": {}, "f:x": {}}}}
    assert encode(decode(fields)) == fields
