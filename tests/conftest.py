"""Options and markers of the whole suite: what is skipped says so and why."""

from __future__ import annotations

import shutil

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("giveway")
    group.addoption("--kubeconfig", help="run tests/e2e on this cluster instead of the embedded control plane")
    group.addoption(
        "--kubelet-stand-in",
        action="store_true",
        help="with --kubeconfig: let the tests play the kubelet of the nodes they bring",
    )
    group.addoption("--run-soak", action="store_true", help="run the tests marked soak, which take minutes")
    group.addoption("--run-bench", action="store_true", help="run the tests marked bench, which print figures")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    reasons = {}
    if not config.getoption("--run-soak"):
        reasons["soak"] = "takes minutes: run with --run-soak (make soak)"
    if not config.getoption("--run-bench"):
        reasons["bench"] = "prints figures: run with --run-bench (make bench)"
    if shutil.which("kubectl") is None:
        reasons["kubectl"] = "kubectl is not on this machine"
    for item in items:
        for marker, reason in reasons.items():
            if item.get_closest_marker(marker) is not None:
                item.add_marker(pytest.mark.skip(reason=reason))
