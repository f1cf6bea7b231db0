"""Certificates as files that change together.

As in a Secret mounted by the kubelet, the files are links into a directory that one link, `..data`, points to: who
reads them sees all of the old ones or all of the new ones.
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from pathlib import Path

from certs.bundle import FILES, Bundle, BundleError, parse
from certs.rotation import CertificateSettings, renew_authority, renew_serving

_DATA = "..data"


def maintain_files(
    directory: Path,
    settings: CertificateSettings,
    now: datetime,
    *,
    rotate: bool = False,
    rotate_authority: bool = False,
) -> Bundle:
    """Make the certificates of a directory, or renew what is due; the certificates as they are then.

    Raises BundleError if the directory holds certificates from elsewhere. Several processes may do this at once.
    """
    directory.mkdir(parents=True, exist_ok=True)
    lock = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stored = read_bundle(directory)
        bundle = renew_authority(stored, settings, now, force=rotate_authority)
        bundle = renew_serving(bundle, settings, now, force=rotate)
        if bundle is not stored:
            write_files(directory, bundle.files())
    finally:
        os.close(lock)
    return bundle


def read_bundle(directory: Path) -> Bundle | None:
    """The certificates in a directory, if there are any. Raises BundleError for those from elsewhere."""
    try:
        return parse(read_files(directory))
    except BundleError as error:
        raise BundleError(f"{directory}: {error}") from error


def read_files(directory: Path) -> dict[str, bytes]:
    """All certificate files in a directory; empty if there is none."""
    return {name: (directory / name).read_bytes() for name in FILES if (directory / name).is_file()}


def write_files(directory: Path, files: Mapping[str, bytes]) -> None:
    """Replace the files of a directory in one step, keys readable by their owner only."""
    directory.mkdir(parents=True, exist_ok=True)
    if read_files(directory) == dict(files):
        return
    version = directory / f"..{secrets.token_hex(8)}"
    version.mkdir(mode=0o755)
    for name, content in files.items():
        mode = 0o600 if name.endswith(".key") else 0o644
        with open(version / name, "xb", opener=partial(os.open, mode=mode)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    _sync(version)
    before = (directory / _DATA).resolve() if (directory / _DATA).is_symlink() else None
    _point(directory / _DATA, version.name)
    for name in files:
        if not (directory / name).is_symlink():
            _point(directory / name, f"{_DATA}/{name}")
    _sync(directory)
    if before is not None and before.parent == directory.resolve():
        shutil.rmtree(before, ignore_errors=True)


def _point(link: Path, target: str) -> None:
    temporary = link.with_name(f"..{secrets.token_hex(8)}")
    temporary.symlink_to(target)
    temporary.replace(link)


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
