"""Policies that load and cannot be used: the set before them stays in force, and the process goes on."""

import pytest

from tests.admission.test_configmaps import refused
from tests.manager.choosing import KEPT, RANGE, TEAMS, chosen, files, names, put
from webhook.manager import policy_uses
from webhook.preemption.victims.rules import Rules


class Part:
    """A part of the process that cannot take sets with this policy into use."""

    def __init__(self, one, name):
        self.one, self.name, self.used = one, name, []

    def __call__(self):
        if self.name in names(self.one):
            raise OverflowError("date value out of range")
        self.used.append(names(self.one))


@pytest.mark.parametrize("kept", [False, True])
async def test_a_set_that_cannot_be_used_leaves_the_one_before_in_force(client, directory, kept, caplog):
    """All parts have the set before again, nothing of the other one is kept, and the problem says what raised."""
    one = await chosen(directory, client if kept else None)
    one.changed = part = Part(one, "more")
    put(directory, RANGE, TEAMS, TEAMS.replace("name: teams", "name: more"))
    await one.reload()
    await one._settle()
    assert names(one) == part.used[-1] == ["kubernetes", "teams"]
    assert f"{directory}: error: these policies cannot be used: OverflowError: date value out of range" in one.problem
    assert "OverflowError" in caplog.text
    if kept:
        assert set((await client.get(KEPT))["data"]) == {"0.yaml", "1.yaml"}
    put(directory, RANGE, TEAMS)
    await one.reload()
    assert (names(one), one.problem) == (["kubernetes", "teams"], "")


async def test_a_new_replica_with_a_set_that_cannot_be_used_comes_up(client, directory):
    """It is ready with the kept set, as with files that are broken."""
    await files(directory, client).reload()
    put(directory, RANGE, TEAMS, TEAMS.replace("name: teams", "name: more"))
    one = files(directory, client)
    one.changed = Part(one, "more")
    await one.reload()
    await one._settle()
    assert (names(one), one.unready()) == (["kubernetes", "teams"], "")


async def test_a_kept_set_that_cannot_be_used(client, directory):
    """A replica goes on by the files, and does not end."""
    await files(directory, client).reload()
    one = files(directory, client)
    one.changed = Part(one, "teams")
    await one._settle()
    assert "cannot be used" in one.problem
    put(directory, RANGE)
    await one.reload()
    await one._settle()
    assert (names(one), one.unready()) == (["kubernetes"], "")


PREEMPTING = """\
apiVersion: giveway.dev/v1alpha1
kind: PreemptionPolicy
metadata: {name: preempting}
spec:
  preemptors: {priorityClasses: [high]}
"""


def raising(*_args, **_more):
    raise OverflowError("date value out of range")


USED = {
    "the decision's rules": (policy_uses, "compile_rules", PREEMPTING, "1:1"),
    "what a rule says of a pod": (Rules, "reason", PREEMPTING, "1:1"),
    "the native form": (policy_uses, "compile_policies", TEAMS, "6:5"),
    "the entries": (policy_uses, "entries", TEAMS, "6:5"),
}


@pytest.mark.parametrize(("owner", "name", "text", "place"), USED.values(), ids=USED)
async def test_what_other_parts_make_of_a_set_is_part_of_its_first_use(  # noqa: PLR0917 - fixtures and cases
    directory, owner, name, text, place, monkeypatch
):
    """Before a set is in force it is known that each part can use it; a set that one cannot use is refused."""
    one = files(directory)
    monkeypatch.setattr(owner, name, raising)
    put(directory, RANGE, text.replace("name: teams", "name: more"))
    await one.reload()
    assert (names(one), one.engine.policies.preemption) == (["kubernetes", "teams"], ())
    assert f"1.yaml:{place}: error: this cannot be used: OverflowError: date value out of range" in one.problem
    said = refused({"1.yaml": text}, {}, policy_uses.USES)
    assert f"giveway-policies/1.yaml:{place}: error: this cannot be used: OverflowError" in said
