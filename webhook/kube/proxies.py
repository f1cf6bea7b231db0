"""The proxy that the environment names for an API server, as kubectl reads HTTPS_PROXY, HTTP_PROXY and NO_PROXY.

Looked up once, when the server is looked up: asking for every request would cost more than many a request does.
"""

from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

__all__ = ["environment_proxy"]


def environment_proxy(url: str) -> str | None:
    """The proxy to reach this URL through; None to reach it directly, as loopback addresses always are."""
    server = urlsplit(url)
    proxies = getproxies_environment()
    proxy, host = proxies.get(server.scheme), server.hostname or ""
    if not proxy or _is_loopback(host) or proxy_bypass(server.netloc):
        return None
    if _is_within(host, proxies.get("no", "")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def _is_within(host: str, ranges: str) -> bool:
    """Whether the host is an address in one of the comma-separated ranges, such as 10.96.0.0/12; names are not."""
    try:
        address = ip_address(host)
    except ValueError:
        return False
    for text in ranges.split(","):
        with suppress(ValueError):
            if address in ip_network(text.strip(), strict=False):
                return True
    return False
