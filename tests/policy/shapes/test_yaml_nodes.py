"""Scalars: durations, and what YAML 1.1 readers take them for."""

import pytest

from webhook.policy.shapes.yaml_nodes import YamlScalar, seconds


def plain(text):
    """An unquoted scalar."""
    return YamlScalar(1, 1, text=text, plain=True)


AMOUNTS = "0=0 0s=0 30=30 30s=30 1h=3600 1h30m=5400 1h30m5s=5405 90m=5400 500ms=0.5 1s500ms=1.5 87600h=315360000"


@pytest.mark.parametrize("row", AMOUNTS.split())
def test_durations(row):
    """Hours, minutes, seconds and milliseconds in that order, or whole seconds."""
    text, amount = row.split("=")
    assert seconds(text) == float(amount)


@pytest.mark.parametrize(
    "text", ["", "s", "h", "-1s", "1.5h", "30m1h", "1d", "1 h", "1H", "90000h", "\u0663s", "\u0663", "1" * 40]
)
def test_no_durations(text):
    """Anything else is none, and so is more than ten years."""
    assert seconds(text) is None


YAML_11 = {
    "true": "yes y on Y",
    "false": "Off n",
    "a number": "010 -017 1_000 0b101",
    "": f"10 0 true 08 1:30 2026-01-01 yesterday {'0' * 100}",
}


@pytest.mark.parametrize(("other", "text"), [(other, text) for other, row in YAML_11.items() for text in row.split()])
def test_what_yaml_11_readers_see(other, text):
    """Unquoted text that YAML 1.1 takes for something else is known, and quoted text never is."""
    assert plain(text).yaml11 == other
    assert YamlScalar(1, 1, text=text, plain=False).yaml11 == ""


YAML_12 = {
    "text": ["a", "yes", "1.2.3", "1s"],
    "null": ["", "~", "null"],
    "bool": ["true"],
    "number": ["010", "0x1F", "0o17", "-1.5e3", ".5", ".inf", ".NaN"],
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, row in YAML_12.items() for text in row])
def test_what_yaml_12_means(kind, text):
    """Unquoted scalars are resolved by the core schema of YAML 1.2; quoted ones are text."""
    assert plain(text).meaning == kind
    assert YamlScalar(1, 1, text=text, plain=False).meaning == "text"
