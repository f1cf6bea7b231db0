"""How the program is divided, beyond import contracts. `python -m tests.bench structure` prints the figures."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.bench.structure import Package, packages

ROOT = Path(__file__).parent.parent
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


@pytest.fixture(scope="module")
def program() -> dict[str, Package]:
    return packages()


def test_one_name_is_one_class(program):
    """No two public classes have the same name."""
    names = Counter(name for package in program.values() for name in package.classes)
    assert {name for name, number in names.items() if number > 1} == set()


def test_a_file_holds_one_subject(program):
    """No file of the program or its tests is longer than 400 lines."""
    lines = {name: lines for package in program.values() for name, lines in package.files.items()}
    lines |= {str(path): path.read_text().count("\n") for path in (ROOT / "tests").rglob("*.py")}
    assert {name: number for name, number in lines.items() if number > 400} == {}


def test_a_function_is_read_in_one_look(program):
    """No function of the program is longer than 60 lines."""
    assert max(lines for package in program.values() for lines in package.functions) <= 60


def test_names_say_what_they_hold():
    """`one` and `found` name nothing: no variable is called that."""
    nothing = {"one", "found"}
    unnamed = [
        f"{path.relative_to(ROOT)}:{name.lineno}"
        for folder in ("webhook", "certs")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in ast.walk(ast.parse(path.read_text()))
        if (isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store) and name.id in nothing)
        or (isinstance(name, ast.arg) and name.arg in nothing)
    ]
    assert unnamed == []


def test_the_picture_of_the_floors_is_the_one_that_imports_keep():
    """ARCHITECTURE.md draws each floor with its rooms as import-linter holds them, and no package has no room."""
    kept = next(contract for contract in CONTRACTS if contract.get("containers") == ["webhook"])
    drawn = re.findall(r"^ +\d+ +(.+)$", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    assert drawn == kept["layers"]
    rooms = {path.parent.name for path in (ROOT / "webhook").glob("*/__init__.py")}
    assert set(re.findall(r"\w+", " ".join(drawn))) == rooms
    assert kept["exhaustive"]


def test_the_rooms_within_packages_are_drawn_as_imports_keep_them():
    """ARCHITECTURE.md has a line for each package with an order of its own, and every package with packages has one."""
    kept = {
        container.removeprefix("webhook."): (contract["layers"], contract["exhaustive"])
        for contract in CONTRACTS
        if contract["type"] == "layers"
        for container in contract.get("containers", [])
        if container != "webhook"
    }
    drawn = re.findall(r"^([a-z.]+) +(\w+ (?:[|>] ?\w* ?)+)$", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    assert {name: (layers.split(" > "), True) for name, layers in drawn} == kept
    inits = [path.relative_to(ROOT / "webhook") for path in (ROOT / "webhook").glob("*/*/**/__init__.py")]
    with_rooms = {".".join(path.parts[:-2]) for path in inits}
    # Those two have a folder of many files alike, and the page's rooms are files
    assert with_rooms ^ kept.keys() == {"inspection", "kube", "page"}
