"""Models of pages for tests: a busy one, an empty one, one with hostile names, and one too large to show."""

from __future__ import annotations

from typing import Any

from webhook.page import model
from webhook.preemption.ranking import RANKING

NOW = 1_800_000_000.0
LEADS = model.Leadership(identity="giveway-reconciler-0_7_ab12cd34", role="leads")
EMPTY = model.Page(leadership=LEADS)
HOSTILE = "\"><script>document.title='caught'</script><img src=x onerror=\"document.title='caught'\">'&\u202egpj"


def rung(name: str, value: int, **more: Any) -> model.Rung:
    return model.Rung(name=name, value=value, **more)


def busy(word: str = "web") -> model.Page:
    """A page on which every part has something; `word` is in every text that comes from the cluster."""
    victim = model.VictimShown(
        pod=f"batch/{word}",
        state="leaving",
        priority=80,
        owner=f"Deployment/{word}",
        rule=f"{word}/opt-in",
        because=word,
    )
    together = tuple(
        model.VictimShown(pod=f"batch/{word}-{number}", state="to be asked", group=f"JobSet batch/{word}")
        for number in range(2)
    )
    values = {key.heading: "12" for key in RANKING}
    values |= {"sum of priorities": "-2147482648", "earliest start": "not started", word: "80"}
    compared = model.Compared(node=f"node-{word}", compared=values)
    ladder = model.Ladder(
        (
            rung("system-node-critical", 2_000_001_000, running=6),
            rung(word, 1000, running=3, pending=1, policy=word),
            rung("batch", 100, running=9, preemptible=4, protected=3, first_end=NOW + 60, last_end=NOW + 900),
        ),
        (model.Band("Kubernetes' own classes", 1_000_000_001, 2**31 - 1), model.Band(f"bands/{word}", 1000, 1999)),
        2,
    )
    return model.Page(
        leadership=model.Leadership(identity=word, role="follows", notice=word, command=f"kubectl {word}"),
        ladder=ladder,
        nodes=3,
        pods=19,
        waiting=(model.WaitingPod(pod=f"team/{word}", priority=1000, state="backoff", reason=word, next_try=NOW),),
        waiting_total=9,
        plans=(
            model.PlanShown(
                preemptor=f"team/{word}",
                priority=1000,
                node=f"node-{word}",
                policy=word,
                step=2,
                begun=NOW,
                until=NOW + 300,
                victims=(victim,),
                devices=(
                    model.DeviceShown(f"gpu/{word}/{word}", (f"team/{word}",)),
                    model.DeviceShown(f"gpu/{word}/free"),
                ),
                more_devices=3,
            ),
            model.PlanShown(
                preemptor=f"team/{word}",
                priority=1000,
                node=f"node-{word}",
                policy=word,
                step=1,
                gang=model.GangShown(
                    name=f"PodGroup team/{word}",
                    minimum=4,
                    bound=1,
                    nominated=2,
                    missing=1,
                    members=tuple(
                        model.MemberShown(pod=f"team/{word}-{number}", node=f"node-{word}", state=state)
                        for number, state in enumerate(("bound", "nominated", "nominated", "to be nominated"))
                    ),
                    more_members=2,
                ),
                victims=(victim, *together),
                more_victims=3,
            ),
        ),
        plans_total=2,
        decisions=(
            model.DecisionShown(
                plan=f"0123{word}",
                at="2027-01-15T08:00:00Z",
                preemptor=f"team/{word}",
                node=f"node-{word}",
                policy=word,
                because=word,
                selected=compared,
                how_compared=word,
                victims=(victim,),
            ),
        ),
        evictions=model.Evictions(total=3, owners=(model.OwnerEvictions(f"Deployment/{word}", (0, 1, 0, 2), NOW),)),
        policies=model.PoliciesShown(rows=(model.PolicyShown("PriorityPolicy", word, word),), loaded=NOW, problem=word),
        certificates=(model.Certificate(f"CN={word}", NOW),),
    )
