"""Lists: pages while objects change, and what is not served."""

import pytest

from webhook.kube.errors import ApiError

MAPS = "/api/v1/namespaces/n/configmaps"


@pytest.fixture
async def client(api):
    client = api.local()
    for name in "abcde":
        await client.create(MAPS, {"metadata": {"name": name}})
    return client


async def page(client, **query):
    answer = await client.get(MAPS, **query)
    return [item["metadata"]["name"] for item in answer["items"]], answer["metadata"]


async def test_pages_name_one_revision(client):
    """What changes between two pages is seen in the second; both name the revision from which a watch goes on."""
    names, first = await page(client, limit=2)
    await client.delete(f"{MAPS}/c")
    await client.create(MAPS, {"metadata": {"name": "bb"}})
    rest, second = await page(client, limit=10, **{"continue": first["continue"]})
    assert (names, rest) == (["a", "b"], ["bb", "d", "e"])
    assert first["resourceVersion"] == second["resourceVersion"]


async def test_expired_pages_go_on(client, api):
    """The token in the answer to one that has expired gives the rest as it is now."""
    _, first = await page(client, limit=2)
    api.store.collections["configmaps"].floor = api.store.revision + 1
    with pytest.raises(ApiError) as refusal:
        await page(client, **{"continue": first["continue"]})
    assert refusal.value.status == 410
    assert (await page(client, **{"continue": refusal.value.continue_token}))[0] == ["c", "d", "e"]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"resourceVersion": "1", "resourceVersionMatch": "Exact"}, "only the newest state is kept here"),
        pytest.param({"limit": "9" * 5000}, "limit must be a whole number", id="limit-of-5000-digits"),
    ],
)
async def test_what_cannot_be_read(client, query, text):
    """A parameter that is not served is a 400 that names it."""
    with pytest.raises(ApiError, match=text) as refusal:
        await page(client, **query)
    assert refusal.value.status == 400
