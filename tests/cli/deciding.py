"""Calls of `giveway decide`, and clusters for it."""

import json
import re
from pathlib import Path

from click.testing import CliRunner

from tests.preemption.building import cluster, node, pod
from webhook.cli.main import main

DATA = Path(__file__).parent.parent / "preemption" / "data"
GOOD = cluster(
    [node("n1"), node("n2", "1")], [pod("victim", on="n1", cpu="3")], pod("preemptor", priority=100, cpu="4")
)
POLICY = """\
apiVersion: giveway.dev/v1alpha1
kind: PreemptionPolicy
metadata: {{name: {name}}}
spec:
  preemptors: {{priorityClasses: [{name}]}}
"""


def changed(**fields):
    """The good cluster with other fields."""
    return {**GOOD, **fields}


def run(*arguments, lines=()):
    """Run the command; lines that are not text yet are encoded."""
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    return CliRunner().invoke(main, ["decide", *map(str, arguments)], input=text, catch_exceptions=False)


def answers(*arguments, lines=()):
    """What it answers to each line."""
    return [json.loads(line) for line in run(*arguments, lines=lines).stdout.splitlines()]


def shown(line, *arguments):
    """The lines that people see of one cluster, without the rules of tables."""
    output = run("--explain", *arguments, lines=[line]).stdout
    return [" ".join(re.sub("[│┃]", " ", text).split()) for text in output.splitlines()]
