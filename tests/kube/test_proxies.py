"""Which proxy the environment names for an API server."""

import pytest

from webhook.kube.endpoint import environment_proxy

PROXY = "http://proxy.example:3128"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    """An environment that names no proxy."""
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("environment", "url", "expected"),
    [
        pytest.param({}, "https://api.example:6443", None, id="none"),
        pytest.param({"HTTPS_PROXY": PROXY}, "https://api.example:6443", PROXY, id="https"),
        pytest.param({"https_proxy": PROXY}, "https://api.example:6443", PROXY, id="lower-case"),
        pytest.param({"HTTP_PROXY": PROXY}, "https://api.example:6443", None, id="http-is-not-for-https"),
        pytest.param({"HTTPS_PROXY": "proxy.example:3128"}, "https://api.example", PROXY, id="without-scheme"),
        pytest.param({"HTTPS_PROXY": PROXY}, "https://127.0.0.1:6443", None, id="loopback"),
        pytest.param({"HTTPS_PROXY": PROXY}, "https://localhost:6443", None, id="localhost"),
        pytest.param({"HTTPS_PROXY": PROXY}, "https://[::1]:6443", None, id="loopback-6"),
        pytest.param({"HTTPS_PROXY": PROXY, "NO_PROXY": "*"}, "https://api.example", None, id="never"),
        pytest.param({"HTTPS_PROXY": PROXY, "NO_PROXY": "a, example"}, "https://api.example", None, id="domain"),
        pytest.param({"HTTPS_PROXY": PROXY, "NO_PROXY": "10.96.0.0/12"}, "https://10.96.0.1", None, id="range"),
        pytest.param({"HTTPS_PROXY": PROXY, "NO_PROXY": "10.96.0.1"}, "https://10.96.0.1:443", None, id="address"),
        pytest.param({"HTTPS_PROXY": PROXY, "NO_PROXY": "fd00::/8"}, "https://[fd00::1]:443", None, id="range-6"),
        pytest.param({"HTTPS_PROXY": PROXY, "NO_PROXY": "10.0.0.0/16"}, "https://10.96.0.1", PROXY, id="other-range"),
    ],
)
def test_proxy_of_the_environment(monkeypatch, environment, url, expected):
    """HTTPS_PROXY and NO_PROXY mean what they mean to kubectl, ranges of addresses included."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert environment_proxy(url) == expected
