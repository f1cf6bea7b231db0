"""Puts the manifests and the shipped policies into the package as data files, for `giveway install`.

They stay where they are in the checkout and have no copy. Everything else about the package is in pyproject.toml.
"""

from __future__ import annotations

from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
FOLDERS = [
    folder
    for top in ("manifests/base", "manifests/components", "policies")
    for folder in sorted({path.parent for path in (ROOT / top).rglob("*") if path.is_file()})
]

setup(
    data_files=[
        (
            f"share/giveway/{folder.relative_to(ROOT).as_posix()}",
            [str(path.relative_to(ROOT)) for path in sorted(folder.iterdir()) if path.is_file()],
        )
        for folder in FOLDERS
    ]
)
