"""The probe's ConfigMap, and no other, is answered with a warning."""

import pytest

from tests.admission.builders import UID, ask, make_context, make_review, response
from webhook.admission.probing import PROBE, answers


def config_map(name):
    return {"kind": "ConfigMap", "metadata": {"name": name, "namespace": "giveway-system"}}


@pytest.mark.parametrize("phase", ["mutate", "validate"])
def test_the_probe_is_answered(phase):
    """Each phase says that it was reached, and by which version."""
    body = make_review(config_map(PROBE), config_map(PROBE))
    assert response(ask(make_context(), phase, body)) == {"uid": UID, "allowed": True, "warnings": [answers(phase)]}


@pytest.mark.parametrize("phase", ["mutate", "validate"])
def test_other_config_maps_pass_in_silence(phase):
    """Nothing else is said of ConfigMaps."""
    body = make_review(config_map("other"), config_map("other"))
    assert response(ask(make_context(), phase, body)) == {"uid": UID, "allowed": True}
