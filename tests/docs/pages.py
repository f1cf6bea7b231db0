"""The fenced blocks of the pages for people, and the commands in them.

```sh                    commands that a test runs, in the order of the page, in one shell
```console               `$ command` lines, each with lines of its output; `…` stands for anything
```sh not-run: REASON    commands that are only checked for syntax and options
<!-- setup … -->         commands that the reader does not see, for a test to run at this place
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("[CS]*.md"))]
_BLOCK = re.compile(
    r"^(?P<indent> *)(?P<fence>```+)(?P<info>[^\n]*)\n(?P<text>.*?)^ *(?P=fence) *$|^<!-- setup\n(?P<setup>.*?)^-->",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block, or a hidden setup: where it begins, its language, why it is not run, its text."""

    page: Path
    line: int
    language: str
    not_run: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Every fenced block of a page, in order."""
    text, found = page.read_text(), []
    for match in _BLOCK.finditer(text):
        line = text[: match.start()].count("\n") + 1
        if match["setup"] is not None:
            found.append(Block(page, line, "setup", "", match["setup"]))
            continue
        language, _, rest = match["info"].strip().partition(" ")
        body = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
        found.append(Block(page, line, language, rest.removeprefix("not-run:").strip() if rest else "", body))
    return found


def exchanges(block: Block) -> list[tuple[str, list[str]]]:
    """The commands of a console block, each with the lines of output that are shown."""
    found: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.startswith("> ") and found and not found[-1][1]:
            found[-1] = (f"{found[-1][0]}\n{line[2:]}", [])
        elif line.strip():
            assert found, f"{block.where}: a console block begins with `$ `"
            found[-1][1].append(line)
    return found


def script(block: Block) -> str:
    """The commands of a block alone."""
    return "\n".join(command for command, _ in exchanges(block)) if block.language == "console" else block.text
