"""Scalars: durations, and what YAML 1.1 readers take them for."""

import pytest

from webhook.policy.shapes.yaml_nodes import YamlScalar, meaning, seconds, yaml11


def plain(text):
    """An unquoted scalar."""
    return YamlScalar(1, 1, len(text), text=text, plain=True)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("0s", 0),
        ("30", 30),
        ("30s", 30),
        ("1h", 3600),
        ("1h30m", 5400),
        ("1h30m5s", 5405),
        ("90m", 5400),
        ("500ms", 0.5),
        ("1s500ms", 1.5),
        ("87600h", 315360000),
    ],
)
def test_durations(text, amount):
    """Hours, minutes, seconds and milliseconds in that order, or whole seconds."""
    assert seconds(text) == amount


@pytest.mark.parametrize(
    "text", ["", "s", "h", "-1s", "1.5h", "30m1h", "1d", "1 h", "1H", "90000h", "\u0663s", "\u0663", "1" * 40]
)
def test_no_durations(text):
    """Anything else is none, and so is more than ten years."""
    assert seconds(text) is None


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("yes", "true"),
        ("Off", "false"),
        ("y", "true"),
        ("010", "the octal number 8"),
        ("-017", "the octal number -15"),
        ("1_000", "the number 1000"),
        ("0b101", "the binary number 5"),
        ("1:30", "the base-60 number 90"),
        ("1:30:00", "the base-60 number 5400"),
        ("-1:30", "the base-60 number -90"),
        ("2026-01-01", "a date"),
        ("10", ""),
        ("0", ""),
        ("true", ""),
        ("08", ""),
        ("a:30", ""),
        ("1:99", ""),
        ("yesterday", ""),
        ("0" * 100, ""),
    ],
)
def test_what_yaml_11_readers_see(text, other):
    """Unquoted text that YAML 1.1 takes for something else is known, and quoted text never is."""
    assert yaml11(plain(text)) == other
    assert yaml11(YamlScalar(1, 1, 1, text=text, plain=False)) == ""


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("a", "text"),
        ("", "null"),
        ("~", "null"),
        ("null", "null"),
        ("true", "bool"),
        ("yes", "text"),
        ("010", "number"),
        ("0x1F", "number"),
        ("0o17", "number"),
        ("-1.5e3", "number"),
        (".5", "number"),
        (".inf", "number"),
        (".NaN", "number"),
        ("1.2.3", "text"),
        ("1s", "text"),
    ],
)
def test_what_yaml_12_means(text, kind):
    """Unquoted scalars are resolved by the core schema of YAML 1.2; quoted ones are text."""
    assert meaning(plain(text)) == kind
    assert meaning(YamlScalar(1, 1, 1, text=text, plain=False)) == "text"
