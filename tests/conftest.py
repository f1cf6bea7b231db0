"""Options and markers of the whole suite: what is skipped says so and why."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from tests.skipped_waits import SkippingLoop

# Tests start Python some hundred times. Each start would compile the project again if nothing were kept.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# How long an example takes says nothing of the program if the machine is busy. `make soak` draws more of them.
settings.register_profile("tests", deadline=None, max_examples=40)
settings.register_profile("soak", deadline=None, max_examples=int(os.environ.get("SEEDS", "600")))
settings.load_profile("tests")

LONGEST = (
    "reconciler/test_clusters.py",
    "e2e/test_install.py",
    "docs/test_commands.py",
    "e2e/test_who_goes.py",
    "installation/test_install.py",
    "installation/test_uninstall.py",
    "installation/test_modes.py",
    "e2e/test_plans.py",
    "clusters/test_drivers.py",
    "e2e/test_notice.py",
    "manifests/test_chart.py",
)
"""Files that take longest, the longest first: they begin first, so that no process is left alone with one."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("giveway")
    group.addoption("--kubeconfig", help="run tests/e2e on this cluster instead of the embedded control plane")
    group.addoption("--kubelet-stand-in", action="store_true", help="with --kubeconfig: play the kubelet of own nodes")
    group.addoption("--run-soak", action="store_true", help="run the tests marked soak, which take minutes")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    skips = item.get_closest_marker("skipped_waits") is not None
    return {"loop": SkippingLoop if skips else asyncio.new_event_loop}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    rank = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    if gone := [str(path) for path in rank if not path.is_file()]:
        raise pytest.UsageError(f"LONGEST in tests/conftest.py names what is not there: {', '.join(gone)}")
    items.sort(key=lambda item: rank.get(item.path, len(rank)))
    needs = {
        "soak": (config.getoption("--run-soak"), "takes minutes: run with --run-soak (make soak)"),
        "kubectl": (shutil.which("kubectl"), "kubectl is not on this machine"),
    }
    for item in items:
        for marker, (there, reason) in needs.items():
            if item.get_closest_marker(marker) is not None and not there:
                item.add_marker(pytest.mark.skip(reason=reason))
