"""Where the API server is and how to be let in: address, TLS, credentials that renew themselves.

A pod's service account is read here. Reading a kubeconfig is the `kubernetes` package's work (tokens, client
certificates, exec plugins, OIDC), which is imported when there is one and not before.
"""

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

log = logging.getLogger(__name__)

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_RENEW_AFTER = 60.0
"""Seconds after which credentials are looked at again, as in the `kubernetes` package."""
_NO_CLUSTER = (
    "no cluster is configured: give --kubeconfig FILE, set KUBECONFIG, write ~/.kube/config, or run in a pod with a"
    " service account"
)


class ConfigError(ValueError):
    """No cluster is configured, or its configuration cannot be read."""


class Credentials(NamedTuple):
    """What lets in: the header of every request, and files of TLS; without `ca_file` the system's authorities count."""

    authorization: str | None = None
    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None


@dataclass
class Endpoint:
    """An API server's address and how to authenticate to it. Raises OSError for a TLS file that cannot be used.

    A `proxy` that is not given is the one the environment names, if any. `renewal(force)` reads the credentials again;
    `force` says that the server refused them. With `insecure` any certificate of the server will do.
    """

    url: str
    credentials: Credentials
    server_name: str | None = None
    proxy: str | None = None
    insecure: bool = False
    renewal: Callable[[bool], Awaitable[Credentials]] | None = None

    def __post_init__(self) -> None:
        self.url = self.url.rstrip("/")
        self.proxy = self.proxy or environment_proxy(self.url)
        self._renewed_at, self._lock = time.monotonic(), asyncio.Lock()
        self.tls: ssl.SSLContext | None = None
        if not self.url.startswith("https"):
            return
        self.tls = ssl.create_default_context(cafile=self.credentials.ca_file)
        # Cluster authorities are often made without the extensions
        # RFC 5280 asks of them; Go's verifier does not mind.
        self.tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.insecure:
            self.tls.check_hostname = False
            self.tls.verify_mode = ssl.CERT_NONE
        self._take_files()

    async def headers(self) -> dict[str, str]:
        """The headers that authenticate a request, renewed about once a minute."""
        if time.monotonic() - self._renewed_at > _RENEW_AFTER:
            await self.renew(force=False)
        authorization = self.credentials.authorization
        return {"Authorization": authorization} if authorization else {}

    async def renew(self, *, force: bool) -> None:
        """Read the credentials again, or go on with the known ones; concurrent callers share a reading."""
        if self.renewal is None:
            return
        asked_at = time.monotonic()
        async with self._lock:
            if self._renewed_at < asked_at:
                try:
                    self.credentials = await self.renewal(force)
                    self._take_files()
                # Many kinds, as in discover; a file may be half written
                except Exception as error:  # noqa: BLE001
                    log.warning("the credentials for %s could not be read again: %s", self.url, error)
                self._renewed_at = time.monotonic()

    def _take_files(self) -> None:
        """Let new connections use the files of TLS as they are now; open ones keep what they have."""
        if self.tls is None:
            return
        _, ca_file, client_cert, client_key = self.credentials
        if ca_file:
            self.tls.load_verify_locations(cafile=ca_file)
        if client_cert:
            # On trial first: a pair that does not fit would leave no key at all
            trial = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            for context in (trial, self.tls):
                context.load_cert_chain(client_cert, client_key)


async def discover(kubeconfig: str | None = None) -> Endpoint:
    """The cluster of `kubeconfig`, else of $KUBECONFIG, of ~/.kube/config, or of this pod. Raises ConfigError."""
    paths = _kubeconfig_paths(kubeconfig)
    where = f"kubeconfig {paths}" if paths else f"service account in {SERVICE_ACCOUNT}"
    try:
        return await (_of_kubeconfig(paths) if paths else _of_service_account())
    # The package raises its own, YAML's, TypeError and KeyError alike
    except Exception as error:
        why = error or type(error).__name__
        raise ConfigError(f"{where}: {why}") from error


def _kubeconfig_paths(kubeconfig: str | None) -> str:
    """The kubeconfig files to read; empty in a pod that has none. Raises ConfigError."""
    home = Path("~/.kube/config").expanduser()
    paths = kubeconfig or os.environ.get("KUBECONFIG") or (str(home) if home.is_file() else "")
    if not paths:
        if not os.environ.get("KUBERNETES_SERVICE_HOST"):
            raise ConfigError(_NO_CLUSTER)
        return ""
    files = (Path(path).expanduser() for path in paths.split(os.pathsep) if path)
    if not any(file.is_file() for file in files):
        raise ConfigError(f"kubeconfig {paths}: there is no such file")
    return paths


async def _of_kubeconfig(paths: str) -> Endpoint:
    """Kubeconfig files as kubectl merges them; they are read again when credentials are renewed."""
    # 20 MB and 0.4 s, which processes in a cluster do without
    from kubernetes.aio.client import Configuration  # noqa: PLC0415
    from kubernetes.aio.config import kube_config  # noqa: PLC0415

    config: Any = Configuration()
    load: Any = kube_config.load_kube_config
    loader: Any = None

    async def renewal(force: bool) -> Credentials:
        nonlocal loader
        # A plugin runs again when its credential is about to expire,
        # or was refused, and not every minute
        if force or "exec" not in (loader._user or ()):  # noqa: SLF001 - the package's refresh_token() reads the same
            loader = await load(paths, client_configuration=config, persist_config=False)
        elif getattr(loader, "exec_plugin_expiry", None) is not None:
            await loader.load_from_exec_plugin()
            config.api_key["BearerToken"] = loader.token
        token = (await config.auth_settings()).get("BearerToken", {})
        files = config.ssl_ca_cert, config.cert_file, config.key_file
        return Credentials(token.get("value"), *files)

    first = await renewal(force=True)
    return Endpoint(
        config.host,
        first,
        config.tls_server_name,
        config.proxy,
        insecure=not config.verify_ssl,
        renewal=renewal,
    )


async def _of_service_account() -> Endpoint:
    """The service account that is mounted into this pod; its token is read again every minute."""
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    port = os.environ.get("KUBERNETES_SERVICE_PORT")
    if not port:
        raise ConfigError("KUBERNETES_SERVICE_PORT is not set")

    async def renewal(force: bool) -> Credentials:
        del force
        token = (SERVICE_ACCOUNT / "token").read_text().strip()
        if not token:
            raise ConfigError("its token is empty")
        return Credentials(f"Bearer {token}", str(SERVICE_ACCOUNT / "ca.crt"))

    host = f"[{host}]" if ":" in host else host
    return Endpoint(f"https://{host}:{port}", await renewal(force=False), renewal=renewal)


def environment_proxy(url: str) -> str | None:
    """The proxy to reach this URL through; None to reach it directly, as loopback addresses always are.

    As kubectl reads HTTPS_PROXY, HTTP_PROXY and NO_PROXY. Looked up once for a
    server: asking for every request would cost more than many a request does.
    """
    server = urlsplit(url)
    proxies = getproxies_environment()
    proxy, host = proxies.get(server.scheme), server.hostname or ""
    if not proxy or host == "localhost" or proxy_bypass(server.netloc):
        return None
    with suppress(ValueError):  # a name is in no range
        address = ip_address(host)
        if address.is_loopback:
            return None
        # Ranges such as 10.96.0.0/12, which Python's own reading of NO_PROXY does not know
        for text in proxies.get("no", "").split(","):
            with suppress(ValueError):
                if address in ip_network(text.strip(), strict=False):
                    return None
    return proxy if "://" in proxy else f"http://{proxy}"
