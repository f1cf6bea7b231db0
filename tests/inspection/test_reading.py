"""Reading all objects of a kind."""

import msgspec

from tests.kube.server import Server
from webhook.inspection.reading import items_of
from webhook.kube import resources
from webhook.kube.client import Client
from webhook.kube.objects.pod import Pod


async def test_an_object_that_cannot_be_read_comes_alone():
    """What cannot be decoded comes as it was sent, and the others of its page are decoded all the same."""
    async with Server() as server, Client.for_server(server.url) as client:
        for name, node in (("a", "n1"), ("b", 5), ("c", "n2")):
            server.put(f"/api/v1/namespaces/team/pods/{name}", spec={"nodeName": node})
        items = [item async for item in items_of(client, resources.POD, Pod)]
    assert [type(item) for item in items] == [Pod, msgspec.Raw, Pod]
