"""What goes into the image: the build context, by the rules of .dockerignore, and what the Dockerfile copies of it."""

import shutil
import subprocess

from tests.manifests.objects import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
_IGNORED = (ROOT / ".dockerignore").read_text().splitlines()
RULES = [line for line in _IGNORED if line and not line.startswith("#")]


def is_sent(path):
    """Whether docker sends a file of the checkout: the last rule decides that names it, or a folder that it is in.

    Everything is left out but what a rule with `!` names. No file of the checkout is in a `**/__pycache__`.
    """
    named = [rule for rule in RULES if f"{path}/".startswith(f"{rule.removeprefix('!')}/")]
    return bool(named) and named[-1].startswith("!")


def copies():
    """Each COPY from the checkout: sources and target."""
    for line in DOCKERFILE.splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            *sources, target = line.split()[1:]
            yield sources, target


def sent_files():
    """The files of the checkout that docker sends."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return [path for path in listed.stdout.splitlines() if is_sent(path) and (ROOT / path).is_file()]


def lay_out(directory):
    """Copy the build context there."""
    for path in sent_files():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, target)
    return directory
