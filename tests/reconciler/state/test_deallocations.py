"""Claims of pods that are gone count as kube-controller-manager will leave them, until the watch shows that."""

from tests.reconciler.device_settings import claim
from webhook.reconciler.state.deallocations import Deallocations

HELD = claim("c", held=("d0",), by=("a", "b"))


def test_one_user_after_the_other():
    """The allocation counts as gone with the last user."""
    known = Deallocations()
    known.expect("uid-a", ["default/c"])
    left = known.overlay("default/c", HELD)
    assert [one.name for one in left.status.reserved_for] == ["b"]
    assert left.status.allocation is not None
    known.expect("uid-b", ["default/c"])
    assert known.overlay("default/c", HELD).status.allocation is None
    assert known.waits_for({"uid-a"})


def test_what_is_seen_is_expected_no_longer():
    """Once the claim is as expected, nothing is remembered of its users."""
    known = Deallocations()
    known.expect("uid-a", ["default/c"])
    known.expect("uid-b", ["default/c"])
    known.overlay("default/c", claim("c", held=("d0",), by=("b",)))
    assert not known.waits_for({"uid-a"})
    assert known.waits_for({"uid-b"})
    free = claim("c")
    assert known.overlay("default/c", free) is free
    assert not known.waits_for({"uid-a", "uid-b"})
    assert known.overlay("default/c", HELD) is HELD


def test_a_pod_that_is_there_after_all():
    """Its claims are as they are, and so are those that are gone."""
    known = Deallocations()
    known.expect("uid-a", ["default/c", "default/d"])
    assert set(known.forget_pod("uid-a")) == {"default/c", "default/d"}
    assert known.overlay("default/c", HELD) is HELD
    known.expect("uid-a", ["default/c"])
    known.forget("default/c")
    assert known.forget_pod("uid-a") == []
