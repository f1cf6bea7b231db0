"""The workflows for GitHub: what they run exists here, and they hold no more rights than they need."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.fixture(params=FILES, ids=lambda file: file.stem)
def workflow(request):
    """A workflow, as YAML 1.2 reads it: `on` is a name."""
    return YAML(typ="safe", pure=True).load(request.param)


def steps(workflow):
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_there_is_one_for_changes_and_one_for_releases():
    """Test and release."""
    assert [file.stem for file in FILES] == ["release", "test"]


def test_what_they_run_exists(workflow):
    """Every target of make, script and path in a command is there."""
    for step in steps(workflow):
        commands = step.get("run", "")
        assert set(re.findall(r"\bmake ([a-z]+)", commands)) <= TARGETS
        for path in re.findall(r"(?<![\w/$\"])(?:\.ci|manifests)/[\w/.-]+|\bpyproject\.toml|\bDockerfile", commands):
            assert (ROOT / path).exists(), path


def test_rights_are_few(workflow):
    """The token reads; a job that writes says what. No step leaves the token in the checkout."""
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        granted = {f"{name}: {right}" for name, right in (job.get("permissions") or {}).items()}
        assert granted <= {"contents: read", "packages: write", "id-token: write"}
        assert job["timeout-minutes"] <= 60
    for step in steps(workflow):
        uses = step.get("uses", "")
        if uses.startswith("actions/checkout@"):
            assert step["with"] == {"persist-credentials": False}
        assert "${{" not in step.get("run", ""), "a value goes to a shell by `env`, not into its text"
        assert not uses or re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v1)", uses)


def test_the_oldest_packages_are_tried_beside_the_newest():
    """Each lower bound of pyproject.toml is a version that is installed and tested, here and for every change."""
    assert "make oldest" in (ROOT / ".ci" / "run").read_text()
    jobs = YAML(typ="safe", pure=True).load(ROOT / ".github" / "workflows" / "test.yaml")["jobs"]
    assert {"run": "make oldest"} in jobs["oldest"]["steps"]
    dry = subprocess.run(["make", "-nB", "oldest"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    allowed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {bound.replace(">=", "==") for bound in allowed} <= set(dry.split())


def test_the_pattern_of_a_release():
    """The tag is compared with the version of package, chart and image, which agree here."""
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    assert f"\nversion: {version}\n" in (ROOT / "manifests" / "chart" / "Chart.yaml").read_text()
    assert f"\nARG VERSION={version}\n" in (ROOT / "Dockerfile").read_text()
