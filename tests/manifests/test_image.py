"""The image: what is in it, that the two processes need no more, and that it fits the pods. It is not built here."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

from tests.manifests.at_work import with_base
from tests.manifests.image import DOCKERFILE, RULES, copies, is_sent, lay_out, sent_files
from tests.manifests.objects import ROOT
from tests.manifests.rendering import arguments, containers, pod_of, rendered
from webhook.cli.main import COMMANDS

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ALONE = {"PATH": os.defpath, "PYTHONPATH": sysconfig.get_path("purelib")}
"""With the flag -S: other packages are found, and this checkout, which is installed for editing, is not."""
LEFT_OUT = {"cluster", "demo", "install", "uninstall"}
"""Sub-commands that the image does not have."""


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory):
    """The build context in a directory of its own: Python finds nothing of giveway but what the image has."""
    return lay_out(tmp_path_factory.mktemp("image"))


def python(laid_out, *args):
    return subprocess.run(
        [sys.executable, "-S", *args], cwd=laid_out, env=ALONE, check=False, capture_output=True, text=True, timeout=120
    )


def test_what_is_sent_to_the_build():
    """Everything that the Dockerfile copies, and nothing that is for trying, testing and installing."""
    sent = sent_files()
    for sources, _ in copies():
        for source in sources:
            assert any(path == source or path.startswith(f"{source}/") for path in sent), source
    assert {path.split("/")[0] for path in sent} == {source for sources, _ in copies() for source in sources}
    assert (RULES[0], [rule for rule in RULES[1:] if "*" in rule]) == ("*", ["**/__pycache__"])
    folders = ("webhook/clusters/embedded", "webhook/clusters/demo", "webhook/installation")
    left_out = re.compile(rf"({'|'.join(folders)})/|(^|/)(tests|examples)/|\.(jsonl|pyc)$")
    assert list(filter(left_out.search, sent)) == []
    assert {
        path.name for path in (ROOT / "webhook" / "cli").glob("*.py") if not is_sent(f"webhook/cli/{path.name}")
    } == {f"{name}.py" for name in LEFT_OUT}


def test_every_command_of_the_image_can_be_loaded(laid_out):
    """Each sub-command imports with what the image has; the others are not listed, and say where they are."""
    there = [name for name in COMMANDS if name not in LEFT_OUT]
    load = "import importlib, sys; [importlib.import_module(f'webhook.cli.{name}') for name in sys.argv[1:]]"
    modules = (
        "; print(*sorted({'.'.join(name.split('.')[1:3]) for name in sys.modules if name.startswith('webhook.')}))"
    )
    result = python(laid_out, "-c", load + modules, *there)
    assert result.returncode == 0, result.stderr
    assert not {"clusters.demo", "clusters.embedded"} & set(result.stdout.split())
    listed = python(laid_out, "-m", "webhook.cli", "--help").stdout
    assert set(re.findall(r"^  (\w+)  +\w", listed, re.MULTILINE)) == set(there)
    refused = python(laid_out, "-m", "webhook.cli", "install")
    assert (refused.returncode, "not part of this image" in refused.stderr) == (2, True)


async def test_the_two_processes_need_no_more_than_the_image_has(laid_out, tmp_path):
    """Certificates, the webhook and the reconciler do their work with nothing but the image's sources."""
    assert python(laid_out, "-c", "import webhook.clusters.embedded").returncode == 1
    alone = {"flags": ["-S"], "cwd": laid_out, "env": ALONE}
    async with (
        with_base(tmp_path, deployments=False) as installed,
        installed.serving(**alone),
        installed.reconciling(**alone),
    ):
        pass  # both are ready, and the webhook is in force


def locked(name):
    """Package to its version and hashes, as a lock file has them."""
    text = (ROOT / name).read_text().replace("\\\n", " ")
    return {line.split()[0]: sorted(line.split()[1:]) for line in text.splitlines() if re.match(r"[a-z0-9]", line)}


def test_the_image_has_the_locked_versions():
    """Its lock is a part of the other one: what runs, with what it needs, and what builds; nothing to develop with."""
    image, everything = locked("requirements.image.lock"), locked("requirements.lock")
    assert image.items() <= everything.items()
    names = {re.split(r"[=;]", one)[0] for one in image}
    wanted = {"setuptools"}
    waiting = [re.match(r"[\w.-]+", one)[0] for one in PROJECT["dependencies"]]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in names - wanted:
            wanted.add(name)
            requirements = importlib.metadata.requires(name) or []
            waiting += [re.match(r"[\w.-]+", one)[0] for one in requirements if "extra ==" not in one]
    assert wanted == names


def test_the_dockerfile_is_linted():
    """Hadolint has nothing to say."""
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if program is None:
        pytest.skip("hadolint is not on this machine: `make install` brings it on Linux and on Macs with Apple silicon")
    result = subprocess.run([program, ROOT / "Dockerfile"], check=False, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (0, "")


def test_the_labels_are_those_of_this_version():
    """The image says what it is, by the keys of the OCI image specification."""
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', DOCKERFILE))
    assert labels["title"] == PROJECT["name"]
    assert labels["licenses"] == PROJECT["license"]
    assert (labels["version"], labels["revision"]) == ("${VERSION}", "${REVISION}")


@pytest.mark.parametrize("deployment", ["giveway-webhook", "giveway-reconciler"])
def test_the_image_is_made_for_the_pods(deployment):
    """User and ports of the image are those of the pods; debug pages stay on the loopback."""
    context = pod_of(rendered(), deployment)["securityContext"]
    server = containers(deployment)[deployment.removeprefix("giveway-")]
    assert f"USER {context['runAsUser']}:{context['runAsGroup']}\n" in DOCKERFILE
    [exposed] = [line.split()[1:] for line in DOCKERFILE.splitlines() if line.startswith("EXPOSE ")]
    ports = {value for name, value in arguments(server).items() if name.endswith("-port")} - {"6060"}
    assert ports <= set(exposed)
