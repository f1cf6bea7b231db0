"""Compiled policies as YAML, for people to read and for kubectl to apply and to compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TextIO

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import LiteralScalarString

from webhook.native.compiler import Compiled

__all__ = ["write"]


def write(compiled: Compiled, source: Path, to: TextIO) -> None:
    """Write every object as a document of its own; expressions of several lines stay as they are."""
    to.write(f"# Made by `giveway compile {source}`: do not edit, change the policies and make it again.\n")
    to.writelines(f"# Not enforced natively: {one}\n" for one in compiled.inexpressible)
    writer = YAML()
    writer.width = 10_000
    writer.explicit_start = True
    writer.indent(mapping=2, sequence=2, offset=0)
    for one in compiled.objects:
        writer.dump(_readable(one), to)


def _readable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _readable(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_readable(one) for one in value]
    return LiteralScalarString(value) if isinstance(value, str) and "\n" in value else value
