"""Claims of pods that are gone count as kube-controller-manager will leave them, until the watch shows that."""

from tests.reconciler.builders import pod
from tests.reconciler.device_settings import claim
from webhook.reconciler.state.claims import Claims

HELD = claim("c", held=("d0",), by=("a", "b"))


def test_one_user_after_the_other():
    """The allocation counts as gone with the last user."""
    known = Claims()
    known.expect_deallocated("uid-a", ["default/c"])
    left = known.overlay("default/c", HELD)
    assert [one.name for one in left.status.reserved_for] == ["b"]
    assert left.status.allocation is not None
    known.expect_deallocated("uid-b", ["default/c"])
    assert known.overlay("default/c", HELD).status.allocation is None
    assert known.waits_for({"uid-a"})


def test_what_is_seen_is_expected_no_longer():
    """Once the claim is as expected, nothing is remembered of its users."""
    known = Claims()
    known.expect_deallocated("uid-a", ["default/c"])
    known.expect_deallocated("uid-b", ["default/c"])
    known.overlay("default/c", claim("c", held=("d0",), by=("b",)))
    assert not known.waits_for({"uid-a"})
    assert known.waits_for({"uid-b"})
    free = claim("c")
    assert known.overlay("default/c", free) is free
    assert not known.waits_for({"uid-a", "uid-b"})
    assert known.overlay("default/c", HELD) is HELD


def test_a_pod_that_is_there_after_all():
    """Its claims are as they are, and so are those that are gone."""
    known = Claims()
    known.expect_deallocated("uid-a", ["default/c", "default/d"])
    assert known.put("default/a", pod("a")) == {"default/c", "default/d"}
    assert known.overlay("default/c", HELD) is HELD
    known.expect_deallocated("uid-a", ["default/c"])
    known.forget("default/c")
    assert known.put("default/a", pod("a")) == set()
