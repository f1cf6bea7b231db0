"""Who is evicted while a cache takes in a list, and what is learned from it: nobody, and nothing of schedulers."""

import math

import pytest

from tests.reconciler.builders import Desk, Setting, node, preemptor
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import fixed, victim
from tests.reconciler.harness.pods import preemptor as waiting
from tests.reconciler.harness.scenarios import ended, later, lived, on_request, scene
from webhook.kube.objects.meta import Condition
from webhook.policy.model.preemption import EvictionMode


@pytest.mark.parametrize("mode", EvictionMode)
def test_nobody_is_evicted_on_half_a_list(mode: EvictionMode):
    """A plan that is under way waits with its next eviction, and then looks at what has become of its node."""

    def list_again(made: Cluster) -> None:
        whole = made.process.service.state.pods.whole
        whole.clear()
        later(1.0, made.put, fixed("newer", "n1", "8", priority=200))
        later(3.0, whole.set)

    again = on_request(list_again, "patch", of="p", done=True)
    made = lived(scene("8", victim("low", "n1", "8"), waiting(cpu="8"), again, eviction=mode))
    assert made.evicted == [], "somebody else has the room by then"
    assert ended(made) == ["outdated"]


@pytest.mark.parametrize("listed", [True, False])
async def test_what_a_list_shows_of_a_pod_is_no_sign_of_its_scheduler(listed: bool):
    """A scheduler may have refused the pod long before: only a watch shows that it does so now."""
    setting = Setting(node("n1"))
    setting.add(preemptor("p"))
    desk, refused = Desk(setting), preemptor("p")
    refused.status.conditions = [Condition(type="PodScheduled", status="False", message="another reason")]
    if listed:
        setting.state.pods.whole.clear()
    setting.add(refused)
    setting.state.pods.whole.set()
    had_its_chance = desk.reconciler.evaluator.schedulers.chance(refused, 0.0, 60.0) < math.inf
    assert had_its_chance is not listed
