"""`kubectl giveway`: the command as a plugin of the real kubectl."""

import asyncio
import os
import shutil
import sys
import tomllib

import click
import pytest

from tests.cases import cases
from tests.manifests.objects import ROOT, documents
from webhook.cli.main import COMMANDS, called_as, main

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture
def plugin(tmp_path):
    """A directory with the console script kubectl-giveway, as pip makes it of pyproject's entry point."""
    module, function = PROJECT["scripts"]["kubectl-giveway"].split(":")
    script = tmp_path / "kubectl-giveway"
    script.write_text(f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
    script.chmod(0o755)
    return tmp_path


async def kubectl(plugin, *arguments, kubeconfig=""):
    """What `kubectl giveway …` prints, and its exit code."""
    path = os.pathsep.join((str(plugin), os.environ["PATH"]))
    process = await asyncio.create_subprocess_exec(
        *("kubectl", "giveway", *map(str, arguments)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PATH": path, "KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(ROOT), "COLUMNS": "120"},
    )
    output, errors = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, output.decode(), errors.decode()


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
async def test_mistakes_are_told_under_its_name(plugin):
    """Usage and errors say `kubectl giveway`."""
    code, _, errors = await kubectl(plugin, "doctor", "--nonsense")
    assert code == 2
    assert errors.startswith("Usage: kubectl giveway doctor [OPTIONS]\nTry 'kubectl giveway doctor --help' for help.")
    _, output, _ = await kubectl(plugin, "--help")
    assert output.startswith("Usage: kubectl giveway [OPTIONS] COMMAND [ARGS]...")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_texts_are_sentences(name):
    """Of every command, of those below it, and of every option that is shown."""
    command = main.get_command(click.Context(main), name)
    below = [command.get_command(None, name) for name in command.commands] if isinstance(command, click.Group) else []
    texts = [COMMANDS[name], command.help, *(each.help for each in below)]
    for each in (command, *below):
        texts += [option.help for option in each.params if isinstance(option, click.Option) and not option.hidden]
    assert [
        text
        for text in texts
        if not text or not text.strip().endswith(".") or (text[0].islower() and not text.startswith("giveway's"))
    ] == []


@pytest.mark.parametrize(
    ("program", "expected"),
    cases(
        ("itself", "/usr/bin/giveway", "giveway"),
        ("plugin", "/home/a/.krew/bin/kubectl-giveway", "kubectl giveway"),
        ("windows", "kubectl-giveway.exe", "kubectl giveway"),
        ("module", "/src/webhook/cli/__main__.py", "giveway"),
    ),
)
def test_names(program, expected):
    """The program's file name decides."""
    assert called_as(program) == expected


def test_the_krew_manifest_fits_the_package():
    """Name and executable are the package's; as long as there is no release, nothing looks downloadable."""
    [manifest] = documents(ROOT / "manifests" / "krew" / "giveway.yaml")
    spec = manifest["spec"]
    assert (manifest["kind"], manifest["metadata"]["name"]) == ("Plugin", "giveway")
    assert len(spec["shortDescription"]) <= 50
    assert {platform["bin"] for platform in spec["platforms"]} == {"kubectl-giveway"} <= set(PROJECT["scripts"])
    for platform in spec["platforms"]:
        assert platform["uri"].startswith("https://example.invalid/") == (set(platform["sha256"]) == {"0"})
