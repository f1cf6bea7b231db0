"""The stages of a plan: what is done in each, what is written of it, and who may change it."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import itertools
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.reconciler.acting import Play, managing, playing
from tests.reconciler.builders import START, Desk, Setting, node, pod, preemptor
from tests.workloads import eventually
from webhook.kube.instants import epoch, rfc3339
from webhook.page.html import STEPS
from webhook.policy.model.preemption import EvictionMode
from webhook.policy.model.values import PLAN, RECONCILER_ANNOTATIONS
from webhook.reconciler.plans import next_action, plan_manager
from webhook.reconciler.plans.actions import Action, Displace, Enter, Try, Wait
from webhook.reconciler.plans.next_action import STAGES, Situation, StageRow
from webhook.reconciler.plans.plan import Plan, PlanLook
from webhook.reconciler.state.annotations import PlanRecord, PlanStage, encode, plan_of
from webhook.reconciler.state.plan_victims import PlanVictim

ROOT = Path(next_action.__file__).parents[1]


async def written(play: Play, stage: PlanStage) -> PlanRecord:
    """The plan on the preemptor `p`, once it names this stage."""

    async def check() -> PlanRecord | None:
        found = await play.get("p")
        record = plan_of(found) if found is not None else None
        return record if record is not None and record.stage is stage else None

    return await eventually(check, 10.0, f"the plan is in stage {stage}")


FIELDS = {field.name for kind in (Plan, PlanLook) for field in dataclasses.fields(kind)}
CHANGING = {"add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"}
OTHERS = {"self", "entry"}
"""Names that no plan has; an entry is one of the queue."""


def changes_of_plans(text: str) -> list[str]:
    """The fields that a module which imports something of plans assigns, deletes or changes in place."""
    module, changed = ast.parse(text), []
    imports = [part.module or "" for part in ast.walk(module) if isinstance(part, ast.ImportFrom)]
    if not any(name.startswith(("webhook.reconciler.plans", "webhook.reconciler.reconciler")) for name in imports):
        return []
    for part in ast.walk(module):
        targets = part.targets if isinstance(part, ast.Assign | ast.Delete) else []
        if isinstance(part, ast.AugAssign | ast.AnnAssign):
            targets = [part.target]
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in CHANGING:
            targets = [part.func.value]
        for target in itertools.chain.from_iterable(
            target.elts if isinstance(target, ast.Tuple) else [target] for target in targets
        ):
            name = target.value if isinstance(target, ast.Subscript) else target
            if isinstance(name, ast.Attribute) and name.attr in FIELDS and ast.unparse(name.value) not in OTHERS:
                changed.append(ast.unparse(name))
    return changed


@pytest.mark.parametrize(
    "line",
    [
        "plan.stage = x",
        "plan.look.chosen = x",
        "a, plan.look.version = 1, 2",
        "plan.gone |= x",
        "plan.gone.add(x)",
        "plan.leaving.setdefault(x, y)",
        "plan.ends[x] = y",
        "del plan.ends[x]",
        "self.plans[x].stage = y",
    ],
)
@pytest.mark.parametrize(
    "known_by", ["plans.plan import (\n    Plan,\n)", "plans.news import News", "reconciler import X"]
)
def test_a_change_of_a_plan_is_found(line: str, known_by: str):
    """However a module comes by the plan that it changes."""
    assert len(changes_of_plans(f"from webhook.reconciler.{known_by}\n{line}\n")) == 1


def test_who_changes_a_plan():
    """Changes of a plan, and of what the last look at it found, are methods: nobody else changes a field of either."""
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in ROOT.rglob("*.py")}
    del texts["plans/plan.py"]
    assert {file: changed for file, text in texts.items() if (changed := changes_of_plans(text))} == {}


def test_every_stage_has_a_row():
    """A stage without a row of what is done in it is none; the page shows each as one of its steps, in their order."""
    assert list(STAGES) == list(PlanStage)
    steps = [row.step for row in STAGES.values()]
    assert steps == sorted(steps)
    assert all(0 <= step < len(STEPS) for step in steps)


@pytest.mark.skipped_waits
async def test_what_is_written_of_the_stages():
    """The plan says since when its victims are asked, and that it waits once it has waited for a while."""
    async with playing(termination_seconds=8.0) as play, play.reconciling(leader_elect=False):
        await play.victim("a", "node-1", "6")
        await play.preemptor("p", "6")
        first = await written(play, PlanStage.EVICTING)
        assert list(first.stages) == [PlanStage.EVICTING]
        then = await written(play, PlanStage.WAITING)
        assert then.stages[PlanStage.EVICTING].startswith(first.stages[PlanStage.EVICTING][:19])
        assert epoch(then.stages[PlanStage.WAITING]) >= epoch(then.stages[PlanStage.EVICTING])
        assert (then.id, then.victims) == (first.id, first.victims)
        assert await play.bound("p") == "node-1"
        await play.nominated("p", "")


@pytest.mark.parametrize("stage", [stage for stage in PlanStage if stage is not PlanStage.NOMINATING])
async def test_a_new_leader_goes_on_in_the_stage(stage: PlanStage):
    """The stage and its times are those that the plan on the pod names; victims that stay are asked all the same."""
    setting, made = Setting(node("n1")), preemptor("p", "8", nominated="n1")
    record = PlanRecord(id="plan", node="n1", victims=(PlanVictim("default", "v", "uid-v"),))
    record = record.entering(PlanStage.EVICTING, rfc3339(START - 60)).entering(stage, rfc3339(START - 30))
    made.metadata.annotations = {PLAN: encode(record)}
    setting.add(pod("v", "8", node="n1"), made)
    desk = Desk(setting)
    desk.reconciler._look_at_all()
    desk.reconciler.turn()
    plan = desk.reconciler.plans["default/p"]
    assert (plan.stage, plan.since[stage]) == (stage, -30.0)
    assert isinstance(desk.reconciler.plan_manager.next_action(plan), Enter | Displace | Try)
    await desk.reconciler.stop()


@pytest.mark.skipped_waits
async def test_a_stage_may_wait_before_it_acts(monkeypatch: pytest.MonkeyPatch):
    """A stage before the last one that only waits is looked at again when that is over; its plan lasts."""

    def evicting(situation: Situation) -> Action:
        begun = situation.plan.since[PlanStage.EVICTING]
        if situation.now < begun + 3.0:
            return Wait(begun + 3.0)
        return STAGES[PlanStage.EVICTING].next_action(situation)

    changed = MappingProxyType({**STAGES, PlanStage.EVICTING: StageRow(evicting, 2, 0.0)})
    for module in (next_action, plan_manager):
        monkeypatch.setattr(module, "STAGES", changed)
    async with playing() as play, play.reconciling(leader_elect=False):
        await play.victim("a", "node-1", "6")
        await play.preemptor("p", "6")
        record = await written(play, PlanStage.EVICTING)
        begun = asyncio.get_running_loop().time()
        while "a" in await play.here():
            assert plan_of(await play.get("p")).id == record.id
            await asyncio.sleep(0.1)
        assert asyncio.get_running_loop().time() - begun > 2.5
        assert await play.bound("p") == "node-1"


@pytest.mark.parametrize("mode", list(EvictionMode))
@pytest.mark.parametrize("annotation", RECONCILER_ANNOTATIONS)
async def test_what_the_reconciler_writes_on_a_victim(annotation: str, mode: EvictionMode):
    """It neither ends the plan nor has anybody tried again, whichever way the victim is asked to leave."""

    async def checkpoint(step: str) -> None:
        if step == "displaced":
            body = {"metadata": {"annotations": {annotation: "told"}}}
            await play.client.patch("/api/v1/namespaces/default/pods/a", body)

    async with (
        playing() as play,
        play.reconciling(managing(eviction=mode), leader_elect=False, checkpoint=checkpoint) as service,
    ):
        await play.victim("a", "node-1", "6")
        await play.victim("other", "node-1", "1", schedulerName="other", preemptionPolicy=None)
        await play.preemptor("p", "6")
        assert await play.bound("p") == "node-1"
        await play.nominated("p", "")
        assert [line["ending"] for line in play.lines("plan ended")] == ["bound"]
        assert service.reconciler.plan_manager.plans == {}


def test_a_stage_that_a_task_is_to_write_keeps_nobody_awake():
    """A plan that goes back to evicting is not due until something happens: its task writes the stage first of all."""
    record = PlanRecord(id="p1", node="n1", victims=(PlanVictim("default", "v", "u1"),), deadline=rfc3339(START))
    plan = Plan(record, "default/p", "u0", 100, 0.0, 60.0)
    for stage in (PlanStage.WAITING, PlanStage.EVICTING):
        plan.enter(stage, 5.0, rfc3339(START), STAGES[stage].write_after)
    assert (plan.idle, plan.write_due, plan.due) == (False, 5.0, 60.0)
