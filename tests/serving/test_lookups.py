"""Live look-ups: merged, bounded, and remembered for as long as the watch cannot have missed a change."""

import asyncio
from types import SimpleNamespace

import pytest

from webhook.kube.errors import ApiError
from webhook.kube.object_cache import Change
from webhook.serving import cluster_objects
from webhook.serving.cluster_objects import Lookups

pytestmark = pytest.mark.skipped_waits


class Asked:
    """An API server that has some objects, and a cache of it whose watch is open."""

    def __init__(self, *, optional=False, **objects):
        self.objects, self.names, self.at_once, self.most = objects, [], 0, 0
        self.cache = SimpleNamespace(handlers=[], watching=True)
        self.lookups = Lookups(self.get, {"podgroups": self.cache}, ["podgroups"] if optional else [])

    async def get(self, resource, name):
        assert resource == "podgroups"
        self.names.append(name)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0.01)
        self.at_once -= 1
        if name == "broken":
            raise ApiError(500, "InternalError", "etcd is away")
        return self.objects.get(name)

    async def find(self, name, address="10.0.0.1", namespace=""):
        return await self.lookups.find("podgroups", name, (address, namespace))

    def tell(self, name):
        """The watch tells something of that name."""
        for handler in self.cache.handlers:
            handler(Change("added", name, None, SimpleNamespace()))


async def test_one_look_up_serves_all_who_ask_for_a_name():
    """A hundred reviews of one class that does not exist cost one request, and so do those of the next second."""
    asked = Asked(there="object")
    assert await asyncio.gather(*(asked.find("ghost") for _ in range(100))) == [None] * 100
    assert await asked.find("ghost") is None
    assert asked.names == ["ghost"]
    assert await asked.find("there") == "object"


async def test_what_the_watch_tells_ends_it_at_once():
    """A class is made: the next review looks again."""
    asked = Asked()
    assert await asked.find("new") is None
    asked.objects["new"] = "object"
    asked.tell("new")
    assert await asked.find("new") == "object"


async def test_what_the_watch_tells_meanwhile_is_not_outlived_by_the_answer():
    """An answer that was overtaken is given, and not remembered."""
    asked = Asked()
    task = asyncio.create_task(asked.find("new"))
    await asyncio.sleep(0.005)
    asked.tell("new")
    assert await task is None
    await asked.find("new")
    assert asked.names == ["new", "new"]


async def test_without_a_watch_nothing_is_remembered():
    """If the watch is broken, every review looks by itself."""
    asked = Asked()
    asked.cache.watching = False
    for _ in range(3):
        await asked.find("ghost")
    assert asked.names == ["ghost"] * 3


async def test_without_a_watch_it_is_remembered_what_is_missing_and_may_be():
    """A name that nobody has is looked up once a second, whoever asks; an object that is there each time."""
    asked = Asked(optional=True, there="object")
    asked.cache.watching = False
    for address in ("10.0.0.1", "10.0.0.2", "10.0.0.1"):
        assert await asked.find("team/ghost", address) is None
        assert await asked.find("there", address) == "object"
    assert asked.names == ["team/ghost", "there", "there", "there"]
    asked.objects["team/ghost"] = "object"
    await asyncio.sleep(1.01)
    assert await asked.find("team/ghost") == "object"


@pytest.mark.parametrize(
    "name",
    ["n" * 254, "Ghost", "a/b/c", "../../secrets/x", "a/" + "n" * 254, "a/", "", "-a", "a-", "a b", "n" * 250_000],
    ids=lambda n: n[:20],
)
async def test_names_that_nothing_can_have(name):
    """They are not looked up: the answer is known."""
    asked = Asked()
    assert await asked.find(name) is None
    assert asked.names == []


async def test_look_ups_are_bounded_and_fair():
    """A thousand names from one address are looked up few at a time, and another address does not wait for them."""
    asked = Asked(there="object")
    flood = [asyncio.create_task(asked.find(f"ghost-{number}", "10.0.0.2")) for number in range(1000)]
    await asyncio.sleep(0)
    assert await asked.find("there", "10.0.0.1") == "object"
    assert len(asked.names) < 100
    await asyncio.sleep(2.0)
    assert 100 < len(asked.names) < 700
    assert asked.most <= 16
    for task in flood:
        task.cancel()
    await asyncio.gather(*flood, return_exceptions=True)
    await asyncio.sleep(0)
    assert asked.lookups._running == {}


@pytest.mark.parametrize("watching", [True, False])
async def test_nobody_waits_where_another_address_has_asked_for_the_same(watching):
    """A name that a flood asks for, too, is looked up in the turn of whoever asks honestly, and not in the flood's."""
    asked = Asked()
    asked.cache.watching = watching
    flood = [asyncio.create_task(asked.find(f"ghost-{number}", "10.0.0.66")) for number in range(1000)]
    flood.append(asyncio.create_task(asked.find("wanted", "10.0.0.66")))
    await asyncio.sleep(0.05)
    began = asyncio.get_running_loop().time()
    assert await asked.find("wanted") is None
    assert asyncio.get_running_loop().time() - began < 1
    assert not flood[-1].done()
    assert await asyncio.gather(*flood) == [None] * 1001


async def test_a_namespace_that_asks_for_much_holds_up_no_other_one():
    """All reviews come from one address, the API server's: its look-ups are shared by the namespaces they are about."""
    asked = Asked(wanted="object")
    flood = [asyncio.create_task(asked.find(f"a/ghost-{number}", namespace="a")) for number in range(1000)]
    flood += [asyncio.create_task(asked.find("wanted", namespace="a"))]
    await asyncio.sleep(0.05)
    for namespace in ("b", "c", "b"):
        began = asyncio.get_running_loop().time()
        assert await asked.find("wanted", namespace=namespace) == "object"
        assert asyncio.get_running_loop().time() - began < 1
        await asyncio.sleep(1.1)
    assert not flood[-1].done()
    for task in flood:
        task.cancel()
    await asyncio.gather(*flood, return_exceptions=True)
    await asyncio.sleep(0)
    assert asked.lookups._running == {}


async def test_what_another_address_has_learned_is_not_asked_again():
    """Two addresses that wait for one name cost one request, if the second one's turn comes within a second."""
    asked = Asked()
    flood = [asyncio.create_task(asked.find(f"ghost-{number}", "10.0.0.66")) for number in range(100)]
    found = await asyncio.gather(asked.find("wanted", "10.0.0.66"), asked.find("wanted"), *flood)
    assert found == [None] * 102
    assert asked.names.count("wanted") == 1


async def test_what_is_remembered_is_bounded(monkeypatch):
    """The oldest answers go."""
    monkeypatch.setattr(cluster_objects, "_MOST_REMEMBERED", 3)
    asked = Asked()
    for number in range(10):
        await asked.find(f"ghost-{number}")
    assert [name for _, name in asked.lookups._remembered] == ["ghost-7", "ghost-8", "ghost-9"]


async def test_an_error_is_everybodys_and_is_not_remembered():
    """Without an answer there is none to keep."""
    asked = Asked()
    found = await asyncio.gather(asked.find("broken"), asked.find("broken"), return_exceptions=True)
    assert [type(one) for one in found] == [ApiError, ApiError]
    assert asked.names == ["broken"]
    with pytest.raises(ApiError):
        await asked.find("broken")


async def test_one_who_gives_up_does_not_take_the_answer_from_others():
    """A review that reaches its deadline leaves the look-up to those who still wait; without any it ends."""
    asked = Asked(there="object")
    first, second = (asyncio.create_task(asked.find("there")) for _ in range(2))
    await asyncio.sleep(0.005)
    first.cancel()
    assert await second == "object"
    alone = asyncio.create_task(asked.find("other"))
    await asyncio.sleep(0.005)
    alone.cancel()
    await asyncio.gather(alone, return_exceptions=True)
    await asyncio.sleep(0)
    assert asked.lookups._running == {}
