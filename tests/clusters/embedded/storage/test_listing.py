"""Lists: pages, selectors, and what has expired."""

import base64

import pytest

from webhook.kube.errors import ApiError

MAPS = "/api/v1/namespaces/n/configmaps"


@pytest.fixture
async def client(api):
    client = api.local()
    for name in "abcde":
        await client.create(MAPS, {"metadata": {"name": name, "labels": {"vowel": str(name in "aeiou").lower()}}})
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


async def test_token_of_nothing(client):
    """A token that is none is refused."""
    text = base64.urlsafe_b64encode(b"{}").decode()
    with pytest.raises(ApiError, match="continue key is not valid"):
        await page(client, **{"continue": text})


async def test_revision_of_the_future(client):
    """A list not older than a revision this server has not reached is refused for now."""
    with pytest.raises(ApiError) as refusal:
        await page(client, resourceVersion="999999")
    assert (refusal.value.status, refusal.value.retry_after) == (504, 1)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"labelSelector": "vowel=true"}, ["a", "e"]),
        ({"labelSelector": "vowel!=true"}, ["b", "c", "d"]),
        ({"labelSelector": "vowel in (true,maybe),!x"}, ["a", "e"]),
        ({"fieldSelector": "metadata.name=c"}, ["c"]),
        ({"fieldSelector": "metadata.name!=c,metadata.namespace=n"}, ["a", "b", "d", "e"]),
        ({"fieldSelector": "metadata.namespace=m"}, []),
        ({"labelSelector": "vowel=true", "fieldSelector": "metadata.name=e"}, ["e"]),
    ],
)
async def test_selectors(client, query, names):
    """Labels and fields narrow a list together."""
    assert (await page(client, **query))[0] == names


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"labelSelector": "a=b=c"}, "a=b=c"),
        ({"fieldSelector": "spec.x=1"}, "field label not supported: spec.x"),
        ({"fieldSelector": "name"}, "invalid selector"),
        ({"limit": "many"}, "limit must be a whole number"),
        ({"resourceVersion": "x"}, "resourceVersion must be a whole number"),
        ({"resourceVersion": "1", "resourceVersionMatch": "Exact"}, "only the newest state is kept here"),
        pytest.param({"limit": "9" * 5000}, "limit must be a whole number", id="limit-of-5000-digits"),
        pytest.param({"resourceVersion": "9" * 5000}, "must be a whole number", id="version-of-5000-digits"),
    ],
)
async def test_what_cannot_be_read(client, query, text):
    """A parameter that cannot be read is a 400 that names it."""
    with pytest.raises(ApiError) as refusal:
        await page(client, **query)
    assert refusal.value.status == 400
    assert text in refusal.value.message


async def test_fields_of_pods(api):
    """Pods are selected by node and phase, empty values included."""
    client = api.local()
    pods = "/api/v1/namespaces/n/pods"
    for name, spec in (("a", {}), ("b", {"nodeName": "n1"})):
        await client.create(
            pods, {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x"}], **spec}}
        )
    for selector, names in {
        "spec.nodeName=": ["a"],
        "spec.nodeName=n1": ["b"],
        "status.phase=Pending,spec.nodeName!=n1": ["a"],
    }.items():
        items, _version = await client.list(pods, fieldSelector=selector)
        assert [item["metadata"]["name"] for item in items] == names, selector
