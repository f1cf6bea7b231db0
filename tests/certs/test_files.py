"""Certificates as files: private keys stay private, and readers see all of the old or all of the new."""

import multiprocessing
import os
import ssl
import stat
import threading
from datetime import UTC, datetime, timedelta

import pytest

from certs.bundle import BundleError
from certs.files import maintain_files, read_files, write_files
from certs.rotation import CertificateSettings, renew_authority
from tests.certs.handshake import server_context, shake_hands

SETTINGS = CertificateSettings(("giveway.giveway-system.svc",))
NOW = datetime.now(UTC)


def test_files_are_made_and_left_alone(tmp_path):
    """The first call makes the files, the second finds nothing to do."""
    first = maintain_files(tmp_path / "certs", SETTINGS, NOW)
    written = (tmp_path / "certs" / "..data").readlink()
    second = maintain_files(tmp_path / "certs", SETTINGS, NOW + timedelta(hours=1))
    assert second.files() == first.files() == read_files(tmp_path / "certs")
    assert (tmp_path / "certs" / "..data").readlink() == written
    shake_hands(server_context(tmp_path / "served", read_files(tmp_path / "certs")), first.trust())


def test_keys_are_their_owners_alone(tmp_path):
    """Keys are 0600 whatever the umask; certificates may be read by all."""
    old = os.umask(0)
    try:
        maintain_files(tmp_path, SETTINGS, NOW)
    finally:
        os.umask(old)
    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in read_files(tmp_path)}
    assert modes == {"tls.crt": 0o644, "ca.crt": 0o644, "retired.crt": 0o644, "tls.key": 0o600, "ca.key": 0o600}


def test_nothing_is_left_behind(tmp_path):
    """After many changes the directory holds one version and no temporary file."""
    for number in range(5):
        maintain_files(tmp_path, SETTINGS, NOW + timedelta(seconds=number), rotate=True)
    names = sorted(entry.name for entry in tmp_path.iterdir())
    version = (tmp_path / "..data").readlink().name
    assert names == sorted(["..data", version, "ca.crt", "ca.key", "retired.crt", "tls.crt", "tls.key"])


def test_plain_files_are_taken_over(tmp_path):
    """Files written by hand into the directory are replaced by links when they change."""
    for name, content in renew_authority(None, SETTINGS, NOW).files().items():
        (tmp_path / name).write_bytes(content)
    bundle = maintain_files(tmp_path, SETTINGS, NOW, rotate=True)
    assert read_files(tmp_path) == bundle.files()
    assert (tmp_path / "tls.key").is_symlink()


def test_readers_always_get_a_pair_that_fits(tmp_path):
    """While certificates are replaced again and again, a reader of one version never sees a key without its match."""
    maintain_files(tmp_path, SETTINGS, NOW)
    stop = threading.Event()

    def rotate():
        while not stop.is_set():
            maintain_files(tmp_path, SETTINGS, datetime.now(UTC), rotate=True)

    writer = threading.Thread(target=rotate)
    writer.start()
    try:
        read = []
        while len(read) < 200:
            version = (tmp_path / "..data").resolve()
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(version / "tls.crt", version / "tls.key")
            except FileNotFoundError:
                continue  # that version was replaced meanwhile
            read.append(version)
    finally:
        stop.set()
        writer.join()
    assert len(set(read)) > 1, "nothing was replaced meanwhile"


def _maintain(directory, results):
    results.put(maintain_files(directory, SETTINGS, NOW).files()["ca.crt"])


def test_processes_that_start_at_once_share_one_authority(tmp_path):
    """Several processes making the same files end up with the same certificates."""
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [context.Process(target=_maintain, args=(tmp_path / "new", results)) for _ in range(6)]
    for process in processes:
        process.start()
    found = {results.get(timeout=20) for _ in processes}
    for process in processes:
        process.join()
    assert found == {read_files(tmp_path / "new")["ca.crt"]}


def test_what_comes_from_elsewhere_is_named(tmp_path):
    """A directory with someone else's certificate is an error that names it."""
    write_files(tmp_path, {"tls.crt": b"theirs", "tls.key": b"theirs"})
    with pytest.raises(BundleError, match=f"{tmp_path}: ca.key is missing"):
        maintain_files(tmp_path, SETTINGS, NOW)
    assert read_files(tmp_path) == {"tls.crt": b"theirs", "tls.key": b"theirs"}
