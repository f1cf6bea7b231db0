"""State that outlives the process: `--data DIR`."""

import pytest

from tests.clusters.embedded.bare import bare_server
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.clusters.embedded.standins.controller_manager import STAND_INS
from webhook.clusters.embedded.storage.object_store import ObjectStore
from webhook.clusters.embedded.storage.persistence import DataError, Journal
from webhook.kube.errors import ApiError

MAPS = "/api/v1/namespaces/n/configmaps"


def opened(directory):
    store = ObjectStore()
    return bare_server(store=store), Journal(store, directory)


async def test_objects_survive(tmp_path):
    """What was created, changed and deleted is so after a restart, under a revision that goes on growing."""
    api, journal = opened(tmp_path)
    client = api.local()
    for name in "abc":
        await client.create(MAPS, {"metadata": {"name": name}, "data": {"k": "1"}})
    changed = await client.patch(f"{MAPS}/b", {"data": {"k": "2"}})
    await client.delete(f"{MAPS}/c")
    journal.close()

    again, journal = opened(tmp_path)
    items, version = await again.local().list(MAPS)
    assert [(item["metadata"]["name"], item["data"]["k"]) for item in items] == [("a", "1"), ("b", "2")]
    assert items[1]["metadata"] == changed["metadata"]
    assert int(version) >= api.store.revision
    created = await again.local().create(MAPS, {"metadata": {"name": "d"}})
    assert int(created["metadata"]["resourceVersion"]) > api.store.revision
    journal.close()


async def test_watches_from_before_list_anew(tmp_path):
    """The history is not kept: a watch from before the restart is told so (410)."""
    api, journal = opened(tmp_path)
    first = await api.local().create(MAPS, {"metadata": {"name": "a"}})
    await api.local().create(MAPS, {"metadata": {"name": "b"}})
    journal.close()
    again, journal = opened(tmp_path)
    stream = again.local().watch(MAPS, resource_version=first["metadata"]["resourceVersion"])
    kind, status = await anext(stream)
    assert kind == "ERROR"
    assert b'"code":410' in status
    journal.close()


async def test_a_line_cut_off_by_a_crash_is_dropped(tmp_path):
    """A last line without its end costs that line only."""
    api, journal = opened(tmp_path)
    await api.local().create(MAPS, {"metadata": {"name": "a"}})
    journal.close()
    with (tmp_path / "store.jsonl").open("ab") as file:
        file.write(b'{"revision":9,"storage":"configm')
    again, journal = opened(tmp_path)
    assert [item["metadata"]["name"] for item in (await again.local().list(MAPS))[0]] == ["a"]
    journal.close()


def test_a_file_of_something_else_is_refused(tmp_path):
    """A file that is no state is named with its line, and left as it is."""
    (tmp_path / "store.jsonl").write_text('{"revision":1}\nhello\n')
    with pytest.raises(DataError, match=r"store\.jsonl:2: not a line of a state file"):
        opened(tmp_path)
    assert (tmp_path / "store.jsonl").read_text() == '{"revision":1}\nhello\n'


async def test_a_cluster_with_a_directory(tmp_path):
    """A whole cluster started again on its directory has its objects and its nodes."""
    for _ in range(2):
        async with EmbeddedCluster(nodes=1, without=STAND_INS, data=tmp_path) as cluster, cluster.client() as client:
            try:
                await client.create("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "kept"}})
                seen = None
            except ApiError as error:
                seen = error.reason
    assert seen == "AlreadyExists"
