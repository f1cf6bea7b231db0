"""CEL selectors of devices: what an expression sees of a device, and the functions of quantities and versions."""

import pytest

from webhook.policy.cel.program import CelError, CelRuntimeError
from webhook.preemption.devices.device_selector import OpaqueError, device_selector, quantity_value, version_value

OWN = "gpu.example.com"


GPU = {
    "driver": OWN,
    "allowMultipleAllocations": False,
    "attributes": {
        OWN: {"model": "a100", "numa": 1, "fast": True, "driverVersion": version_value("1.10.0")},
        "resource.kubernetes.io": {"pcieRoot": "pci0"},
    },
    "capacity": {OWN: {"memory": quantity_value("40Gi")}},
}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('device.driver == "gpu.example.com"', True),
        ("device.allowMultipleAllocations", False),
        (f'device.attributes["{OWN}"].model == "a100"', True),
        (f'device.attributes["{OWN}"].numa > 1', False),
        (f'device.attributes["{OWN}"].fast', True),
        (f"device.attributes['{OWN}'].model in ['a100', 'h100']", True),
        (f'device.attributes["{OWN}"].exists(name, name == "numa")', True),
        ('device.attributes["resource.kubernetes.io"].pcieRoot.startsWith("pci")', True),
        (f'"{OWN}" in device.attributes', True),
        ('"other.example.com" in device.attributes', False),
        ('has(device.attributes["other.example.com"].model)', False),
        (f'has(device.attributes["{OWN}"].nothing)', False),
        (f'device.attributes["{OWN}"].?nothing.orValue(3) == 3', True),
        (f'cel.bind(own, device.attributes["{OWN}"], own.numa == 1 && own.fast)', True),
        (f'device.capacity["{OWN}"].memory.compareTo(quantity("40960Mi")) == 0', True),
        (f'device.capacity["{OWN}"].memory.isLessThan(quantity("40G"))', False),
        (f'device.capacity["{OWN}"].memory == quantity("40Gi")', True),
        (f'device.attributes["{OWN}"].driverVersion.isGreaterThan(semver("1.9.9"))', True),
        (f'device.attributes["{OWN}"].driverVersion.minor() == 10', True),
        ("device.attributes[device.driver].numa == 1", True),
        ('"bandwidth" in device.capacity["other.example.com"]', False),
        ('"x" in device.attributes["oth" + "er.example.com"]', False),
        ('"x" in device.attributes[["other.example.com"][0]]', False),
        (f'"x" in device.attributes[device.attributes["{OWN}"].model]', False),
        ('"device.attributes[\'x\']" == "device." + "attributes[\'x\']"', True),
        ('device.attributes[?"other.example.com"].orValue({}).size() == 0', True),
        ("'abc'.substring(0, 3) == 'abc' && ''.split('').size() == 0", True),
    ],
)
def test_what_a_selector_says(expression, expected):
    """Attributes and capacities by domain; a domain that the device does not have is empty."""
    assert device_selector(expression).matches(GPU) is expected


@pytest.mark.parametrize(
    "expression",
    [
        'quantity("50k").add("20k") == quantity("70k")'.replace('"20k"', 'quantity("20k")'),
        'quantity("50k").sub(20000) == quantity("30k")',
        'quantity("50k").asInteger() == 50000 && !quantity("50m").isInteger()',
        'quantity("0").sign() == 0 && quantity("-1").sign() == -1',
        'isQuantity("1.3Gi") && !isQuantity("1,3Gi")',
        'quantity("1500m").asApproximateFloat() == 1.5',
        'semver("1.0.0-rc.2").isLessThan(semver("1.0.0-rc.10")) && semver("1.0.0-rc.2").isLessThan(semver("1.0.0"))',
        'semver("v01.2", true) == semver("1.2.0") && isSemver("v1.0", true) && !isSemver("v1.0")',
        'semver("1.2.3").major() + semver("1.2.3").patch() == 4',
        'semver("1.0.0").compareTo(semver("2.0.0")) == -1',
    ],
)
def test_functions_of_quantities_and_versions(expression):
    """They give what Kubernetes' libraries give."""
    assert device_selector(expression).matches(GPU)


@pytest.mark.parametrize(
    "expression",
    [
        f'device.attributes["{OWN}"].nothing == 1',
        'device.attributes["other.example.com"].model == "a"',
        f'device.attributes["{OWN}"].model.compareTo(quantity("1")) == 0',
        f'device.attributes["{OWN}"].model',
        f'device.attributes["{OWN}"].numa >= "1"',
        'quantity("three") == quantity("3")',
    ],
)
def test_an_expression_without_an_answer_is_an_error(expression):
    """Neither yes nor no."""
    with pytest.raises(CelRuntimeError):
        device_selector(expression).matches(GPU)


@pytest.mark.parametrize("expression", ["device.driver ==", "sets.contains([1], [1])", "1 / 'a' == 1", "x" * 20_000])
def test_what_does_not_compile(expression):
    """Libraries that are not known here do not compile, and are no wrong answer."""
    with pytest.raises(CelError):
        device_selector(expression)


@pytest.mark.parametrize("text", ["1.2", "01.2.3", "1.2.3-", "v1.2.3", "1.2.x"])
def test_what_is_no_version(text):
    """Semantic versions are read strictly."""
    with pytest.raises(OpaqueError):
        version_value(text)
