"""Where the API server is and how to be let in: address, TLS, credentials that renew themselves.

Kubeconfig and in-cluster loading are the `kubernetes` package's (tokens, client certificates, exec plugins, OIDC).
What is needed of it is imported when a cluster is looked up and not before (`webhook.kube.loaders`).
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from webhook.kube.loaders import loaders

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_RENEW_AFTER = 60.0
"""Seconds after which credentials are looked at again, as in the `kubernetes` package."""


class ConfigError(ValueError):
    """No cluster is configured, or its configuration cannot be read."""


class Endpoint:
    """An API server's address and how to authenticate to it.

    A `proxy` that is not given is the one the environment names, if any. `renew(force)` brings `authorization` and
    the TLS files up to date; `force` says that the server refused them.
    """

    def __init__(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None = None,
        authorization: str | None = None,
        server_name: str | None = None,
        proxy: str | None = None,
        renew: Callable[[Endpoint, bool], Awaitable[None]] | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self.tls = tls
        self.authorization = authorization
        self.server_name = server_name
        self.proxy = proxy or environment_proxy(url)
        self._renew = renew
        self._renewed_at = time.monotonic()
        self._lock = asyncio.Lock()

    @property
    def renewable(self) -> bool:
        """Whether asking again can bring other credentials."""
        return self._renew is not None

    async def headers(self) -> dict[str, str]:
        """The headers that authenticate a request, renewed about once a minute."""
        if self._renew is not None and time.monotonic() - self._renewed_at > _RENEW_AFTER:
            await self.renew(force=False)
        return {"Authorization": self.authorization} if self.authorization else {}

    async def renew(self, *, force: bool) -> None:
        """Read the credentials again; concurrent callers share one reading."""
        if self._renew is None:
            return
        asked_at = time.monotonic()
        async with self._lock:
            if self._renewed_at < asked_at:
                await self._renew(self, force)
                self._renewed_at = time.monotonic()


def tls_context(
    ca_file: str | None, client_cert: str | None, client_key: str | None, *, verify: bool = True
) -> ssl.SSLContext:
    """A client's TLS context; `ca_file` None means the system's authorities."""
    context = ssl.create_default_context(cafile=ca_file)
    # Cluster authorities are often made without the extensions RFC 5280 asks of them; Go's verifier does not mind.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if client_cert:
        context.load_cert_chain(client_cert, client_key)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def discover(kubeconfig: str | None = None) -> Endpoint:
    """The cluster of `kubeconfig`, else of $KUBECONFIG, else of ~/.kube/config, else the one this process runs in.

    Raises ConfigError saying what was looked at and what would be right.
    """
    source = _source(kubeconfig)
    try:
        return await source.endpoint()
    except ConfigError:
        raise
    except Exception as error:  # the package raises its own, YAML's, TypeError and KeyError alike
        raise ConfigError(f"{source.where}: {error or type(error).__name__}") from error


class _Source(ABC):
    """What the `kubernetes` package read, turned into an endpoint and kept current."""

    where: str

    def __init__(self) -> None:
        self._files: dict[str, int] = {}

    @abstractmethod
    async def load(self, config: Any) -> None:
        """Fill the package's Configuration."""

    @abstractmethod
    async def reload(self, config: Any, force: bool) -> None:
        """Renew what may have changed in the Configuration."""

    async def endpoint(self) -> Endpoint:
        """The endpoint of the cluster; it renews itself through this source."""
        config = loaders().configuration()
        await self.load(config)
        tls = None
        if config.host.startswith("https"):
            tls = tls_context(config.ssl_ca_cert, config.cert_file, config.key_file, verify=config.verify_ssl)
            self._changed_files(config)

        async def renew(endpoint: Endpoint, force: bool) -> None:
            await self.reload(config, force)
            endpoint.authorization = await _authorization(config)
            if endpoint.tls is None or not self._changed_files(config):
                return
            # New connections take the new files; those that are open go on with what they have
            if config.ssl_ca_cert:
                endpoint.tls.load_verify_locations(cafile=config.ssl_ca_cert)
            if config.cert_file:
                endpoint.tls.load_cert_chain(config.cert_file, config.key_file)

        return Endpoint(
            config.host,
            tls=tls,
            authorization=await _authorization(config),
            server_name=config.tls_server_name,
            proxy=config.proxy,
            renew=renew,
        )

    def _changed_files(self, config: Any) -> bool:
        paths = [path for path in (config.ssl_ca_cert, config.cert_file, config.key_file) if path]
        stamps = {path: Path(path).stat().st_mtime_ns for path in paths}
        changed = stamps != self._files
        self._files = stamps
        return changed


class _Kubeconfig(_Source):
    """One or several kubeconfig files, as kubectl merges them."""

    def __init__(self, paths: str) -> None:
        super().__init__()
        self.where = f"kubeconfig {paths}"
        self._paths = paths
        self._loader: Any = None

    async def load(self, config: Any) -> None:
        load: Any = loaders().kube_config.load_kube_config
        self._loader = await load(config_file=self._paths, client_configuration=config, persist_config=False)

    async def reload(self, config: Any, force: bool) -> None:
        user = self._loader._user  # noqa: SLF001 - the package's own refresh_token() reads the same
        if force or user is None or "exec" not in user:
            await self.load(config)
        elif hasattr(self._loader, "exec_plugin_expiry"):
            # The loader runs the plugin again only if its credential is about to expire.
            await self._loader.load_from_exec_plugin()
            config.api_key["BearerToken"] = self._loader.token


class _InCluster(_Source):
    """The service account mounted into this pod; the package reads its token again every minute."""

    where = "service account in /var/run/secrets/kubernetes.io/serviceaccount"

    async def load(self, config: Any) -> None:
        loaders().incluster_config.load_incluster_config(client_configuration=config)

    async def reload(self, config: Any, force: bool) -> None:
        if force:
            await self.load(config)


def _source(kubeconfig: str | None) -> _Source:
    paths = kubeconfig or os.environ.get("KUBECONFIG") or ""
    if not paths and (home := Path("~/.kube/config").expanduser()).is_file():
        paths = str(home)
    if not paths and not os.environ.get("KUBERNETES_SERVICE_HOST"):
        raise ConfigError(
            "no cluster is configured: give --kubeconfig FILE, set KUBECONFIG, write ~/.kube/config,"
            " or run in a pod with a service account"
        )
    if paths and not any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path):
        raise ConfigError(f"kubeconfig {paths}: there is no such file")
    return _Kubeconfig(paths) if paths else _InCluster()


async def _authorization(config: Any) -> str | None:
    settings = await config.auth_settings()
    value: str | None = settings.get("BearerToken", {}).get("value")
    return value


def environment_proxy(url: str) -> str | None:
    """The proxy to reach this URL through; None to reach it directly, as loopback addresses always are.

    As kubectl reads HTTPS_PROXY, HTTP_PROXY and NO_PROXY. Looked up once for a server: asking for every request would
    cost more than many a request does.
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
