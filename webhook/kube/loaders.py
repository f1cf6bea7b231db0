"""The `kubernetes` package's configuration loaders, without the client they come with.

Importing `kubernetes.aio.config` in the ordinary way runs the `__init__` of `kubernetes`, `kubernetes.aio` and
`kubernetes.aio.client`, which bring a second, synchronous client, pydantic and more: 22 MB and 0.4 s for what needs
2.2 MB. So those three packages are entered without running their `__init__`, and afterwards everything is taken out of
`sys.modules` again: whoever else imports `kubernetes` gets it whole.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from typing import Any, NamedTuple


class Loaders(NamedTuple):
    """What is used of the package: its Configuration class and the modules of its two loaders."""

    configuration: Any
    kube_config: Any
    incluster_config: Any


@cache
def loaders() -> Loaders:
    """Import the loaders, once."""
    if "kubernetes" in sys.modules:
        return _import()
    try:
        return _import_apart()
    except (ImportError, AttributeError):  # another version of the package, built otherwise
        return _import()


def _import() -> Loaders:
    return Loaders(
        import_module("kubernetes.aio.client.configuration").Configuration,
        import_module("kubernetes.aio.config.kube_config"),
        import_module("kubernetes.aio.config.incluster_config"),
    )


def _import_apart() -> Loaders:
    try:
        for name in ("kubernetes", "kubernetes.aio", "kubernetes.aio.client"):
            spec = find_spec(name)
            if spec is None:
                raise ImportError(f"{name} is not installed")
            sys.modules[name] = module_from_spec(spec)
        client: Any = sys.modules["kubernetes.aio.client"]
        client.Configuration = import_module("kubernetes.aio.client.configuration").Configuration
        client.ApiClient = None  # named by kube_config, used by none of the functions called here
        return _import()
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "kubernetes"]:
            del sys.modules[name]
