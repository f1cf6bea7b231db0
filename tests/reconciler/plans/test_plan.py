"""A plan: what is written of it, how a new leader goes on with it, and who may change it."""

import ast
import dataclasses
import itertools
from pathlib import Path

import pytest

from tests.reconciler.builders import START, Desk, Setting, node, planned, pod, preemptor
from webhook.kube.instants import rfc3339
from webhook.reconciler.plans import plan as plans
from webhook.reconciler.plans.actions import Action, Ask, Wait
from webhook.reconciler.plans.plan import Plan, PlanLook
from webhook.reconciler.state.annotations import PlanRecord
from webhook.reconciler.state.plan_victims import PlanVictim

ROOT = Path(plans.__file__).parents[1]


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


def test_who_changes_a_plan():
    """Changes of a plan, and of what the last look at it found, are methods: nobody else changes a field of either."""
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in ROOT.rglob("*.py")}
    del texts["plans/plan.py"]
    assert {file: changed for file, text in texts.items() if (changed := changes_of_plans(text))} == {}


@pytest.mark.parametrize(
    ("notice", "there", "expected"),
    [
        pytest.param(0.0, True, Ask, id="the victim stays: it is asked"),
        pytest.param(60.0, True, Ask, id="its notice is not known any more, and the policy asks for none"),
        pytest.param(0.0, False, Wait, id="nobody is left"),
    ],
)
async def test_a_new_leader_goes_on(notice: float, there: bool, expected: type[Action]):
    """Who has to be told and asked is read off the victims; when the plan began is written."""
    setting, made = Setting(node("n1")), preemptor("p", "8", nominated="n1")
    record = PlanRecord(id="plan", node="n1", victims=(PlanVictim("default", "v", "uid-v"),), begun=rfc3339(START - 60))
    planned(made, record.with_notice(notice))
    setting.add(*([pod("v", "8", node="n1")] if there else []), made)
    desk = Desk(setting)
    desk.lead()
    plan = desk.reconciler.plans["default/p"]
    assert plan.nominated
    assert plan.evicting is not None
    assert isinstance(desk.reconciler.plan_manager.next_action(plan), expected)
