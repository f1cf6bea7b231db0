"""Every command of the pages for people: run as it stands, or checked as far as it can be without what it needs."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

import click
import pytest

from tests.clusters.embedded.background import running
from tests.docs.pages import PAGES, ROOT, Block, blocks, exchanges, script
from tests.ports import free_port
from webhook.cli.main import main
from webhook.policy.files.loading import load_or_raise
from webhook.policy.reports import removals

SHELL = {"sh", "console", "setup"}
KNOWN = SHELL | {"text", "yaml", "json", "python", "dockerfile", "mermaid"}
RUN = [page for page in PAGES if any(one.language in SHELL and not one.not_run for one in blocks(page))]
CHECKED = [one for page in PAGES for one in blocks(page) if one.language in SHELL]
GIVEWAY = re.compile(r"(?:^|[;&|(]|\$ ?\(|-- )\s*(?:kubectl )?giveway ((?:[^;&|\n()\\]|\\\n)*)", re.MULTILINE)

OFFLINE = ("lint ", "test ", "decide ", "certs issue --dir ")
"""How the giveway commands begin that talk to no API server."""


def name(page):
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_says_what_it_is(page):
    """A block without a language is neither highlighted nor tested; commands that are not run say why."""
    for block in blocks(page):
        assert block.language in KNOWN, f"{block.where}: language {block.language!r}"
    indented = re.findall(r"^    (?:kubectl|giveway|docker|helm|curl) .*", page.read_text(), re.MULTILINE)
    assert [one for one in indented if not any(one.strip() in block.text for block in blocks(page))] == []


@pytest.mark.parametrize("block", CHECKED, ids=lambda block: block.where)
def test_commands_can_be_parsed(block):
    """The shell takes every block, and giveway takes every option that a page gives it."""
    checked = subprocess.run(
        ["bash", "-n"], input=script(block), text=True, capture_output=True, timeout=30, check=False
    )
    assert checked.returncode == 0, checked.stderr
    for found in GIVEWAY.finditer(script(block)):
        arguments = re.split(r"(?<!\S)\d?[<>]", found[1].replace("\\\n", " "))[0]
        words = shlex.split(arguments, comments=True)
        if not any("$" in word for word in words):
            check_options(words, block.where)


def check_options(words, where):
    """Fail for a command or option that giveway does not have."""
    command, context = main, None
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context or click.Context(command), words[0])
        assert found is not None, f"{where}: giveway has no command {words[0]!r}"
        command, words = found, words[1:]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        option = word.split("=")[0]
        if option.startswith("--") and len(option) > 2 and option != "--help":
            assert option in known, f"{where}: giveway {command.name} has no option {option}"


def commands(command, *names):
    """Every command with options of its own, and by what words it is called."""
    context = click.Context(command)
    if not isinstance(command, click.Group):
        return [pytest.param(" ".join(names), command, id=" ".join(names))]
    below = ((name, command.get_command(context, name)) for name in command.list_commands(context))
    return [found for name, inner in below for found in commands(inner, *names, name)]


HIDDEN = {
    **dict.fromkeys(["--webhook-configuration", "--kept-policies"], "scripts still say so what --entries says"),
    "--allow-removal": "for a directory of one's own; in a cluster the annotation says what may go",
}


@pytest.mark.parametrize(("name", "command"), commands(main))
def test_every_option_has_a_page(name, command):
    """Each option of a command stands on a page that names the command, unless it is hidden and listed here."""
    pages = [page.read_text() for page in PAGES if page.name not in {"CHANGELOG.md", "CONTRIBUTING.md"}]
    text = "\n".join(page for page in pages if re.search(rf"giveway {name}\b", page))
    options = [option for option in command.params if isinstance(option, click.Option)]
    assert {option.opts[0] for option in options if option.hidden} <= HIDDEN.keys()
    spellings = {option: [*option.opts, *option.secondary_opts] for option in options if not option.hidden}
    assert [names for names in spellings.values() if not any(on_page(one, text) for one in names)] == []


def on_page(option, text):
    """Whether an option stands there, and not only as a part of a longer one."""
    return re.search(rf"(?<![-\w]){re.escape(option)}(?![-\w])", text)


@pytest.fixture
def checkout(tmp_path):
    """A directory as a fresh clone, with `giveway` on the PATH."""
    directory, programs = tmp_path / "giveway", tmp_path / "bin"
    for folder in ("policies", "manifests", "examples", "tests/admission/recorded"):
        if (ROOT / folder).is_dir():
            shutil.copytree(ROOT / folder, directory / folder)
    programs.mkdir()
    for program in ("giveway", "kubectl-giveway"):
        (programs / program).write_text(f'#!/bin/sh\nexec "{sys.executable}" -m webhook.cli "$@"\n')
        (programs / program).chmod(0o755)
    return directory, programs


@pytest.mark.kubectl
@pytest.mark.parametrize("page", RUN, ids=name)
def test_commands_do_what_the_page_says(page, checkout, tmp_path):
    """A page's commands, in order, in one shell with a cluster if they need one, end well and print what is shown.

    Policies that a how-to writes in place of the shipped ones can be put in force: they give nothing up.
    """
    directory, programs = checkout
    (tmp_path / "tmp").mkdir()
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "KUBECONFIG": str(tmp_path / "kubeconfig"),
        "TMPDIR": str(tmp_path / "tmp"),
        "COLUMNS": "120",
    }
    secure, health, debug = (str(free_port()) for _ in range(3))
    environment |= {"GIVEWAY_SECURE_PORT": secure, "GIVEWAY_HEALTH_PORT": health, "GIVEWAY_DEBUG_PORT": debug}
    steps = list(steps_of(page))
    lines = ["set -uo pipefail", *(f"echo; echo '--- {number}'\n{step.commands}" for number, step in enumerate(steps))]
    with cluster(tmp_path / "kubeconfig") if needs_cluster(page) else nullcontext():
        commands = "\n".join([*lines, "echo; echo '--- end'", ""])
        code, output = run_shell(commands.replace(":9443", f":{secure}"), directory, environment)
    assert code == 0, output
    printed = dict(re.findall(r"^--- (\w+)\n(.*?)(?=^--- |\Z)", output, re.MULTILINE | re.DOTALL))
    for number, step in enumerate(steps):
        there = re.sub(r"[^\S\n]+", " ", printed[str(number)])
        for line in step.shown:
            pattern = ".*".join(re.escape(part) for part in re.sub(r"\s+", " ", line.strip()).split("…"))
            assert re.search(pattern, there), f"{step.block.where} shows {line!r}, but this is printed:\n{there}"
    if page.parent.name == "how-to":
        shipped, written = load_or_raise(ROOT / "policies"), load_or_raise(directory / "policies")
        assert [str(one) for one in removals(shipped, written)] == [], "the webhook would hold these policies back"


def needs_cluster(page):
    """Whether a page has commands that talk to an API server."""
    text = "\n".join(script(one) for one in blocks(page) if one.language in SHELL and not one.not_run)
    return "kubectl" in text or not all(found[1].startswith(OFFLINE) for found in GIVEWAY.finditer(text))


class Step(NamedTuple):
    """Commands of a block that are run together, and lines that they must print."""

    block: Block
    commands: str
    shown: list[str]


def steps_of(page):
    """What is run of a page: each command of a console block by itself, and other blocks, which must not fail."""
    for block in blocks(page):
        if block.language == "console" and not block.not_run:
            yield from (Step(block, command, shown) for command, shown in exchanges(block))
        elif block.language in SHELL and not block.not_run:
            failed = shlex.quote(f"{{ echo 'failed: {block.where}'; exit 1; }}")
            yield Step(block, f"set -e\ntrap {failed} ERR\n{block.text}\ntrap - ERR\nset +e", [])


def run_shell(commands, directory, environment):
    """The exit code and the output of a shell that reads these commands; what it leaves running is ended."""
    shell = subprocess.Popen(
        ["bash"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=directory,
        env=environment,
        start_new_session=True,
    )
    try:
        output, _ = shell.communicate(commands, timeout=180)
        return shell.returncode, output
    finally:
        end_group(shell.pid)


@contextmanager
def cluster(kubeconfig):
    """An embedded control plane as `giveway cluster` starts it, for as long as the block runs."""
    with running(nodes=3, termination_seconds=0.2) as started:
        started.write_kubeconfig("admin", started.token, kubeconfig)
        yield


def end_group(group):
    """End what a page has left running."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(group, number)
        except ProcessLookupError:
            return
        time.sleep(0.3)
