"""Which policies are in force: those of the files, unless these are broken or give up rules; kept over a restart."""

import asyncio
import time

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.admission.builders import make_policy
from tests.manager.choosing import KEPT, RANGE, SYSTEM, TEAMS, allow_removal, chosen, files, held, names, put
from tests.policy.builders import table
from tests.workloads import eventually as until
from webhook.inspection.reading import read_policies
from webhook.kube.errors import ApiError
from webhook.manager.kept_policies import KeptPolicies, files_by_key
from webhook.manager.policy_chooser import PolicyChooser, PolicyMetrics
from webhook.policy.files.loading import PolicySource, PolicyTexts, texts_of
from webhook.policy.model.match import RequestMatch
from webhook.policy.model.policies import Policies
from webhook.policy.model.priority import PolicyException
from webhook.policy.shapes.findings import PolicyError
from webhook.policy.shapes.yaml_nodes import SourcePosition


async def test_a_reload_that_gives_up_rules_is_held_back(directory, caplog):
    """A file that went missing opens nothing: the log names the rule and how to say that it is meant."""
    one = files(directory)
    put(directory, TEAMS)
    await one.reload()
    assert names(one) == ["kubernetes", "teams"]
    assert "kubernetes: the PriorityPolicy with its 1 rules is gone" in one.problem
    assert 'giveway.dev/allow-removal: "kubernetes"' in caplog.text
    assert held(one) == 1
    put(directory, RANGE, TEAMS.replace("allowed,", "allowed, enforcement: audit,"))
    await one.reload()
    assert "teams/allowed: enforcement enforce becomes audit" in one.problem
    put(directory, RANGE, TEAMS.replace("[standard]", "[]"))
    await one.reload()
    assert (one.problem, held(one)) == ("", 0)


async def test_removal_is_allowed_by_an_option(directory):
    """With --allow-removal every change is taken into use."""
    one = files(directory, allow_removal=True)
    put(directory, TEAMS)
    await one.reload()
    assert (names(one), one.problem) == (["teams"], "")


async def test_a_reconciler_without_a_kept_set_goes_by_its_files(directory):
    """It reloads them and holds back what gives up rules, as the webhook does."""
    one = files(directory, judge=False)
    put(directory, RANGE, TEAMS, TEAMS.replace("name: teams", "name: more"))
    await one.reload()
    assert (names(one), one.problem) == (["kubernetes", "teams", "more"], "")
    put(directory, RANGE)
    await one.reload()
    assert names(one) == ["kubernetes", "teams", "more"]


async def test_the_set_in_force_is_kept(client, directory):
    """What is used is written where a restarted pod finds it, and written once."""
    one = files(directory, client)
    assert "have not been read" in one.unready()
    await one.reload()
    assert (names(one), one.unready(), one.problem) == (["kubernetes", "teams"], "", "")
    first = await client.get(KEPT)
    assert first["data"] == {"0.yaml": RANGE, "1.yaml": TEAMS}
    await one.reload()
    assert (await client.get(KEPT))["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_a_restart_with_broken_files_comes_up(client, directory, caplog):
    """It comes up with the last good set, says so loudly, and goes on with the files once they are mended."""
    await files(directory, client).reload()
    put(directory, RANGE.replace("reserve", "reserv"), TEAMS)
    one = await chosen(directory, client)
    assert (names(one), one.unready()) == (["kubernetes", "teams"], "")
    assert "the files are not in use, the set in force stays" in one.problem
    assert "0.yaml:6:" in caplog.text
    put(directory, RANGE, TEAMS, TEAMS.replace("name: teams", "name: more"))
    await one.reload()
    assert (names(one), one.problem) == (["kubernetes", "teams", "more"], "")


async def test_a_restart_with_a_lost_file_comes_up_closed(client, directory):
    """A restart is not the way to lose a rule: the kept set is compared with the files first."""
    await files(directory, client).reload()
    put(directory, TEAMS)
    one = await chosen(directory, client)
    assert names(one) == ["kubernetes", "teams"]
    assert "kubernetes" in one.problem


async def test_a_kept_set_that_somebody_deletes(client, directory):
    """What is held back stays so, because the set in use is known; and that set is kept again for the next restart."""
    one = await chosen(directory, client)
    put(directory, TEAMS)
    await one.reload()
    await client.delete(KEPT)
    await one._settle()
    assert names(one) == ["kubernetes", "teams"]
    assert "kubernetes" in one.problem
    kept = await client.get(KEPT)
    assert kept["data"] == {"0.yaml": RANGE, "1.yaml": TEAMS}
    await one._settle()
    assert (await client.get(KEPT))["metadata"]["resourceVersion"] == kept["metadata"]["resourceVersion"]


async def test_an_annotation_allows_it_later(client, directory):
    """What was held back is taken into use as soon as the ConfigMap says that it is meant, without another change."""
    await files(directory, client).reload()
    put(directory, TEAMS)
    one, told = files(directory, client), []
    one.changed = lambda: told.append(names(one))
    await one.reload()
    await allow_removal(client, "other, kubernetes")
    await one._settle()
    assert (names(one), one.problem, told[-1]) == (["teams"], "", ["teams"])
    assert set((await client.get(KEPT))["data"]) == {"0.yaml"}


async def test_replicas_and_reconciler_agree(client, directory, tmp_path):
    """Who does not judge the files, or has not seen them change, uses what is kept."""
    other = tmp_path / "other"
    other.mkdir()
    put(other, TEAMS)
    webhook, reconciler = files(directory, client), files(other, client, judge=False)
    await reconciler._settle()
    assert names(reconciler) == ["teams"], "nothing is kept yet"
    await webhook.reload()
    await reconciler._settle()
    assert names(reconciler) == ["kubernetes", "teams"]
    replica = await chosen(directory, client)
    put(directory, RANGE, TEAMS.replace("[standard]", "[]"))
    await webhook.reload()
    for one in (replica, reconciler):
        await one._settle()
        assert one.engine.policies.priority[1].rules[0].priority_classes.allow == ()


async def test_two_replicas_write_at_once(client, directory, tmp_path):
    """Both replicas start at the same moment with other files: the loser looks again, and nothing is given up."""
    other = tmp_path / "other"
    other.mkdir()
    put(other, RANGE, TEAMS, TEAMS.replace("name: teams", "name: more"))
    one, two = files(directory, client), files(other, client)
    await asyncio.gather(one.reload(), two.reload())
    for _ in range(3):
        await one._settle()
        await two._settle()
    assert names(one) == names(two) == ["kubernetes", "teams", "more"]


async def test_nothing_kept_and_broken_files(client, directory):
    """There is nothing to fall back to: not ready, with the findings; a kept set or mended files end that."""
    put(directory, "kind: nonsense")
    one = await chosen(directory, client)
    assert "no kind of policy" in one.unready()
    with pytest.raises(PolicyError):
        files(directory)
    put(directory, TEAMS)
    await one.reload()
    assert (one.unready(), names(one)) == ("", ["teams"])


async def test_a_kept_set_that_somebody_widened_is_put_back(client, directory, caplog):
    """Sound files win over a kept set that gives less protection: not one review is judged by it."""
    one, reconciler = files(directory, client), files(directory, client, judge=False)
    for each in (one, reconciler):
        await each.reload()
    kept = KeptPolicies(client, SYSTEM)
    sound = await kept.read()
    changes = []
    one.changed = reconciler.changed = lambda: changes.append(1)
    assert await kept.write({"1.yaml": TEAMS})
    for each in (reconciler, one, reconciler):
        await each._settle()
        assert names(each) == ["kubernetes", "teams"]
    assert (await kept.read(), changes) == (sound, [])
    assert "gives less protection than" in caplog.text
    assert "kubernetes: the PriorityPolicy with its 1 rules is gone; it is put back" in caplog.text
    assert one._metrics.restored._value.get() == 1


async def test_a_kept_set_that_is_stricter_or_meant_is_followed(client, directory, tmp_path):
    """Another replica whose files are newer decides, also if they give up what somebody has said may go."""
    one = await chosen(directory, client)
    kept = KeptPolicies(client, SYSTEM)
    await kept.read()
    assert await kept.write({"0.yaml": RANGE, "1.yaml": TEAMS.replace("[standard]", "[]")})
    await one._settle()
    assert one.engine.policies.priority[1].rules[0].priority_classes.allow == ()
    await allow_removal(client, "kubernetes")
    newer = tmp_path / "newer"
    newer.mkdir()
    put(newer, TEAMS.replace("[standard]", "[]"))
    other = await chosen(newer, client)
    assert names(other) == ["teams"]
    for _ in range(2):
        await one._settle()
        await other._settle()
    assert names(one) == names(other) == ["teams"]


async def test_a_kept_set_of_another_version(client, directory, caplog):
    """What this version cannot read is told, and the files count."""
    kept = KeptPolicies(client, SYSTEM)
    assert await kept.write({"0.yaml": "apiVersion: giveway.dev/v9\nkind: Other"})
    one = await chosen(directory, client)
    assert names(one) == ["kubernetes", "teams"]
    assert await kept.read()
    assert await kept.write({"0.yaml": "apiVersion: giveway.dev/v9\nkind: Third"})
    for _ in range(3):
        await one._settle()
    assert names(one) == ["kubernetes", "teams"]
    assert caplog.text.count("cannot be read by this version") == 2, "once for each set"


async def test_api_server_away(client, directory, monkeypatch):
    """Without an answer it is not known what is in force: not ready at the start, as before later on."""

    async def away(*_args, **_more):
        raise ApiError(503, "ServiceUnavailable", "away")

    one = files(directory, client)
    with monkeypatch.context() as patch:
        patch.setattr(client, "get", away)
        await one.reload()
        assert "cannot be read or written" in one.unready()
    await one._settle()
    assert one.unready() == ""
    with monkeypatch.context() as patch:
        patch.setattr(client, "get", away)
        put(directory, RANGE)
        await one.reload()
        assert names(one) == ["kubernetes", "teams"]
        assert one.unready() == ""


async def test_the_server_serves_what_is_kept(start, client, directory):
    """A server whose files are broken is ready with the kept set, and /readyz says what is wrong."""
    await files(directory, client).reload()
    put(directory, "kind: nonsense")
    kept = KeptPolicies(client, SYSTEM)
    async with start(policies=directory, kept=kept) as running:
        await until(running.ready)
        _, report = await running.get("/readyz?verbose")
        assert "2 PriorityPolicies and 0 PreemptionPolicies in use; the files are not in use" in report


async def test_a_healthy_start_says_nothing_is_broken(start, client, directory):
    """Before it is known which policies are in force, that is said, and no file is called broken."""
    kept = KeptPolicies(client, SYSTEM)
    async with start(policies=directory, kept=kept) as running:
        _, first = await running.get("/readyz?verbose")
        await until(running.ready)
    assert "broken" not in first
    assert not [line for line in running.lines() if "broken" in str(line) or line.get("level") == "error"]


@table(
    "names, keys",
    {
        "files whose names become alike": (["/a/b c.yaml", "/a/b_c.yaml"], ["b_c.yaml", "b_c_.yaml"]),
        "both suffixes": (["/a/x.yml", "/a/x.yaml"], ["x.yml", "x.yaml"]),
        "objects": (["prioritypolicy/web", "preemptionpolicy/web"], ["web.yaml", "web_.yaml"]),
        "an object with a dot in its name": (["prioritypolicy/web.v1"], ["web.v1.yaml"]),
        "long": (["a/" + "o" * 253, "b/" + "o" * 253], ["o" * 200 + ".yaml", "o" * 200 + "_.yaml"]),
        "nothing but a suffix": (["/a/.yaml", "/b/.yaml"], [".yaml", "_.yaml"]),
    },
)
def test_names_of_policies(names, keys):
    """Every policy gets a key of its own that a ConfigMap takes, and that readers take for a policy file's."""
    kept = files_by_key([(name, str(number)) for number, name in enumerate(names)])
    assert kept == {key: str(number) for number, key in enumerate(keys)}
    assert [text for _, text in texts_of("kept", kept).texts] == [kept[key] for key in sorted(kept)]


def of_objects(policies):
    """Policies from objects, each a text of its own, as a watch on custom resources would show them."""
    return PolicySource(
        "prioritypolicies.giveway.dev",
        lambda: PolicyTexts([(f"prioritypolicy/{name}", text) for name, text in policies.items()], []),
    )


async def test_the_source_makes_no_difference(client, caplog):
    """What is in force is kept, given up only if somebody says so, and seen by inspections, wherever it comes from."""
    objects = {"kubernetes": RANGE, "teams": TEAMS}
    source = of_objects(objects)
    kept = KeptPolicies(client, SYSTEM)
    one = PolicyChooser(source, CollectorRegistry(), kept=kept)
    await one._settle()
    assert names(one) == ["kubernetes", "teams"]
    inspected = await read_policies(client, None, SYSTEM)
    assert [policy.name for policy in inspected.priority] == ["kubernetes", "teams"]
    del objects["kubernetes"]
    await one.reload()
    assert names(one) == ["kubernetes", "teams"]
    assert "kubernetes: the PriorityPolicy with its 1 rules is gone" in one.problem
    objects["kubernetes"] = RANGE.replace("reserve", "reserv")
    await one.reload()
    assert "prioritypolicy/kubernetes:6:" in one.problem
    objects.clear()
    await one.reload()
    assert "prioritypolicies.giveway.dev holds no policies any more" in one.problem
    assert set((await client.get(KEPT))["data"]) == {"kubernetes.yaml", "teams.yaml"}


@pytest.mark.parametrize("pair", [("a", "a-b"), ("a b.yaml", "a-b.yaml")], ids=["objects", "files"])
async def test_policies_have_one_order(pair, client):
    """Of defaults the first that applies wins, so what reads the kept policies has them in the webhook's order."""
    source = of_objects({name: TEAMS.replace("teams", f"from-{at}") for at, name in enumerate(pair)})
    kept = KeptPolicies(client, SYSTEM)
    one = PolicyChooser(source, CollectorRegistry(), kept=kept)
    await one._settle()
    inspected = await read_policies(client, None, SYSTEM)
    assert names(one) == [policy.name for policy in inspected.priority]


def test_exceptions_are_counted_as_of_the_scrape():
    """The metric says how many hold and how many are over."""
    registry = CollectorRegistry()
    here = SourcePosition("p.yaml", 1, 1)
    rows = tuple(
        PolicyException(
            match=RequestMatch(namespaces=("a",)), rules=("allowed",), reason="r", owner="o", until=end, source=here
        )
        for end in (time.time() + 60, time.time() - 60, 0.0)
    )
    policies = Policies(priority=(msgspec.structs.replace(make_policy("teams"), exceptions=rows),))
    PolicyMetrics(registry, lambda: policies)
    text = generate_latest(registry).decode()
    assert 'giveway_policy_exceptions{state="active"} 1.0' in text
    assert 'giveway_policy_exceptions{state="ended"} 2.0' in text
