"""Nodes with devices that pods hold by claims, preemptors for devices, and a reconciler with a plan for one."""

from typing import Any

from tests.preemption.devices import building
from tests.reconciler.builders import Desk, Setting, are_nominated, node, pod, policy, preemptor
from webhook.kube.objects.devices import ResourceClaim
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import DEVICE_CLASS, RESOURCE_CLAIM, RESOURCE_SLICE
from webhook.policy.model.victims import VictimMode, Victims
from webhook.reconciler.evaluate.outcomes import Evicts
from webhook.reconciler.plans.plan import Plan

DRIVER = building.DRIVER


def claim(name: str, count: int = 1, *, held: tuple[str, ...] = (), on: str = "n1", by: tuple[str, ...] = ()) -> Any:
    """A claim for so many devices; an allocated one holds these, and is reserved for pods by their names."""
    return building.claim(name, [building.count_of("gpu", count)], pool=on, held=held, users=by)


def uses(name: str) -> dict[str, Any]:
    """What a pod's spec says to use the claim."""
    return {"resourceClaims": [{"name": "r", "resourceClaimName": name}]}


TEMPLATE = {"resourceClaims": [{"name": "r", "resourceClaimTemplateName": "t"}]}
"""What a pod's spec says to get a claim of its own."""


def holder(name: str, cpu: str = "100m", *, on: str = "n1", **fields: Any) -> Pod:
    """A pod with the devices of claim `c-NAME`, if nothing else is said; only the policy says that it may go."""
    return pod(name, cpu, node=on, annotations={}, **{"spec": uses(f"c-{name}"), **fields})


class Devices(Setting):
    """Nodes with devices, each held by a pod of its own, `NODE-N`."""

    def __init__(self, **nodes: int) -> None:
        super().__init__(*map(node, nodes), under=policy(victims=Victims(mode=VictimMode.OPT_OUT)))
        caches = self.state.caches
        caches[DEVICE_CLASS].take("gpu", building.device_class("gpu"))
        for host, count in nodes.items():
            devices = [{"name": f"d{number}"} for number in range(count)]
            caches[RESOURCE_SLICE].take(host, building.resource_slice(host, host, devices))
            for number in range(count):
                self.add(holder(f"{host}-{number}", on=host))
                self.claim(claim(f"c-{host}-{number}", held=(f"d{number}",), on=host, by=(f"{host}-{number}",)))

    def claim(self, one: ResourceClaim) -> None:
        """Let the watch show a claim."""
        self.state.caches[RESOURCE_CLAIM].take(f"default/{one.metadata.name}", one)

    def wants(self, name: str, count: int, **fields: Any) -> Pod:
        """A preemptor for so many devices, and its claim."""
        self.claim(claim(f"c-{name}", count))
        made = preemptor(name, "100m", spec=uses(f"c-{name}"), **fields)
        self.add(made)
        return made

    def ends(self, name: str) -> None:
        """Let the watch show that a pod is gone; its claim is still as it was."""
        self.remove(f"default/{name}")

    def deallocated(self, name: str) -> None:
        """Let the watch show what kube-controller-manager leaves of a claim."""
        self.claim(claim(name))


def begun(setting: Devices, made: Pod) -> tuple[Desk, Plan]:
    """A reconciler with the plan for the preemptor, which is nominated."""
    desk = Desk(setting)
    outcome = setting.evaluate(made)
    assert isinstance(outcome, Evicts), outcome
    plan = desk.reconciler.plan_manager.begin(made, setting.policy, outcome, 0)
    are_nominated(plan)
    return desk, plan


def all_asked(desk: Desk, plan: Plan) -> None:
    """All victims have been asked."""
    for victim in plan.record.victims:
        desk.reconciler.plan_manager.asked(plan, desk.reconciler.state.pods.get(victim.key))
