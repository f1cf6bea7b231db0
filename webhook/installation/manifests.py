"""Where the manifests are: in the checkout, or among the data files of the installed package. They have no copy."""

from __future__ import annotations

import sysconfig
from pathlib import Path

__all__ = ["ManifestsError", "all_components", "components", "manifests"]

_CHECKOUT = Path(__file__).parents[2]


class ManifestsError(Exception):
    """The manifests cannot be found or rendered; the text says what is wrong and where."""


def manifests() -> Path:
    """The directory `manifests`, with `policies` beside it. Raises ManifestsError if this installation has none."""
    installed = Path(sysconfig.get_path("data")) / "share" / "giveway"
    for root in (_CHECKOUT, installed):
        if (root / "manifests" / "base" / "kustomization.yaml").is_file():
            return root / "manifests"
    raise ManifestsError(
        f"this installation of giveway has no manifests: neither {_CHECKOUT} nor {installed} holds them"
    )


def components(given: tuple[str, ...]) -> list[Path]:
    """The directories of components, by the name of a shipped one or by path. Raises ManifestsError for others."""
    shipped = {path.name: path for path in all_components()}
    found = []
    for one in given:
        path = shipped.get(one, Path(one))
        if not path.is_dir():
            raise ManifestsError(f"there is no component {one}; there are {', '.join(shipped)}, or give a directory")
        found.append(path)
    return found


def all_components() -> list[Path]:
    """The directories of all shipped components, in the order of their names."""
    return sorted(path.parent for path in (manifests() / "components").glob("*/kustomization.yaml"))
