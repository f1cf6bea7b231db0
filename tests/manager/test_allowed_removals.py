"""The annotation by which people say that policies may give something up: what it lets through, and for how long."""

from tests.manager.choosing import RANGE, SYSTEM, TEAMS, allow_removal, chosen, files, held, names, put
from webhook.admission.configmaps import ALLOW_REMOVAL
from webhook.kube.errors import ApiError
from webhook.kube.resources import CONFIG_MAP

APPLIED = CONFIG_MAP.path(SYSTEM, "giveway-policies")


async def allowance(client):
    """The annotation on the ConfigMap that people apply."""
    return ((await client.get(APPLIED))["metadata"].get("annotations") or {}).get(ALLOW_REMOVAL)


async def test_an_annotation_serves_one_change(client, directory, caplog):
    """It is taken off when what it allows is in use, and not before; the next change needs one of its own."""
    caplog.set_level("INFO")
    one = files(directory, client)
    await allow_removal(client, "kubernetes, teams")
    await one.reload()
    put(directory, RANGE, TEAMS, TEAMS.replace("name: teams", "name: more"))
    await one.reload()
    assert await allowance(client) == "kubernetes, teams", "it has served nothing yet"
    put(directory, TEAMS, TEAMS.replace("name: teams", "name: more"))
    await one.reload()
    assert (names(one), await allowance(client)) == (["teams", "more"], None)
    assert 'giveway.dev/allow-removal: "kubernetes, teams"; it served one change' in caplog.text
    put(directory, TEAMS.replace("name: teams", "name: more"))
    await one.reload()
    assert (names(one), held(one)) == (["teams", "more"], 1)


async def test_an_annotation_that_changed_meanwhile_stays(client, directory, monkeypatch):
    """Somebody has said something else since: that is for another change."""
    one = await chosen(directory, client)
    await allow_removal(client, "kubernetes")
    patch = client.patch

    async def late(*args, **more):
        await patch(APPLIED, {"metadata": {"annotations": {ALLOW_REMOVAL: "teams"}}})
        return await patch(*args, **more)

    put(directory, TEAMS)
    with monkeypatch.context() as changed:
        changed.setattr(client, "patch", late)
        await one.reload()
    await one._settle()
    assert (names(one), one.problem, await allowance(client)) == (["teams"], "", "teams")


async def test_an_annotation_that_cannot_be_taken_off(client, directory, monkeypatch, caplog):
    """The policies are in use; it is said once, and tried again."""
    one = await chosen(directory, client)
    await allow_removal(client, "kubernetes")

    async def refused(*_args, **_more):
        raise ApiError(403, "Forbidden", "no right to patch")

    put(directory, TEAMS)
    with monkeypatch.context() as changed:
        changed.setattr(client, "patch", refused)
        await one.reload()
        await one._settle()
    assert (names(one), one.problem, await allowance(client)) == (["teams"], "", "kubernetes")
    assert caplog.text.count("allow-removal stays on ConfigMap giveway-policies and allows more") == 1
    await one._settle()
    assert await allowance(client) is None
