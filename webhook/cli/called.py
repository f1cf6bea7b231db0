"""The command as it was called: `giveway`, or `kubectl giveway` if kubectl ran it as its plugin `kubectl-giveway`."""

from __future__ import annotations

import re
from pathlib import PurePath

import click

__all__ = ["as_called", "called_as"]

_PLUGIN = "kubectl-giveway"
_MENTIONED = re.compile(r"(?<![\w./-])giveway (?=(?:certs|configurations|doctor|explain|install|scan|uninstall)\b)")
"""A command of giveway in a text for people."""


def called_as(program: str) -> str:
    """What people typed, by the path of the program that runs."""
    name = PurePath(program).name
    return "kubectl giveway" if name.removesuffix(".exe") == _PLUGIN else "giveway"


def as_called(text: str) -> str:
    """A text for people, with the commands in it as this one was called: only that name may be on their PATH."""
    context = click.get_current_context(silent=True)
    name = (context.find_root().info_name if context else None) or "giveway"
    return _MENTIONED.sub(f"{name} ", text)
