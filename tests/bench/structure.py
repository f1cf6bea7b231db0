"""How the program is divided, and how far a reader of the reconciler goes: figures of its files and functions."""

from __future__ import annotations

import ast
import statistics
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import preemptor, victim
from tests.reconciler.harness.scenarios import bound, lived, scene

ROOT = Path(__file__).parents[2]


@dataclass
class Package:
    """A folder's lines per file, lines per function, and its public classes."""

    files: dict[str, int] = field(default_factory=dict)
    functions: list[int] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)

    def add(self, path: Path) -> None:
        """Count one module."""
        text = path.read_text()
        if path.name != "__init__.py":
            self.files[str(path.relative_to(ROOT))] = text.count("\n")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions.append((node.end_lineno or node.lineno) - node.lineno + 1)
            elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                self.classes.append(node.name)


def packages() -> dict[str, Package]:
    """The packages of the program by name, and `certs`."""
    found: dict[str, Package] = {}
    for path in sorted([*(ROOT / "webhook").rglob("*.py"), *(ROOT / "certs").rglob("*.py")]):
        parts = path.relative_to(ROOT).parts
        found.setdefault("/".join(parts[: min(2, len(parts) - 1)]), Package()).add(path)
    return found


def plan_way() -> dict[tuple[str, str], None]:
    """The files and functions of the reconciler by which a plan goes, from event to binding, in order of first call."""
    read: dict[tuple[str, str], None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        code, module = frame.f_code, str(frame.f_globals.get("__name__", ""))
        goes_on = code.co_flags & 0x2A0 and frame.f_lasti > 0  # a coroutine that does
        if event == "call" and module.startswith("webhook.reconciler.") and code.co_name[0] != "<" and not goes_on:
            read.setdefault((module, code.co_qualname))

    def begin(made: Cluster) -> None:
        sys.setprofile(note)
        made.put(preemptor(cpu="8"))

    full = scene("8", victim("a", "n1"), victim("b", "n1"))
    made = lived(full, 20.0, at_5=begin, at_15=lambda _: sys.setprofile(None))
    assert bound(made, "p") == ["p"]
    return read


def main() -> None:
    """Print the table and the ways."""
    rows = packages()
    rows["all"] = Package(
        {path: lines for package in rows.values() for path, lines in package.files.items()},
        [lines for package in rows.values() for lines in package.functions],
    )
    print(f"{'package':24} files  lines  median/p90/max  functions  median/p90/max")
    for name, row in rows.items():
        files, functions = (f"{_spread(lines):>14}" for lines in (row.files.values(), row.functions))
        sizes = f"{len(row.files):5}  {sum(row.files.values()):5}"
        print(f"{name:24} {sizes}  {files}  {len(row.functions):9}  {functions}")
    way = plan_way()
    print(f"\na plan's way: {len(way)} functions in {len({file for file, _ in way})} files")
    if "--calls" in sys.argv:
        for file, function in way:
            print(f"    {file}  {function}")


def _spread(numbers: Iterable[int]) -> str:
    ordered = sorted(numbers) or [0]
    return f"{statistics.median_low(ordered)}/{ordered[int(len(ordered) * 0.9)]}/{ordered[-1]}"
