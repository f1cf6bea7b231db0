"""The reviews that giveway makes itself."""

from webhook.admission.own_reviews import RESOURCES
from webhook.admission.webhook import HANDLED


def test_every_kind_that_is_judged_can_be_asked_about():
    """A new handler is a new row here; a Binding is asked about as a sub-resource of its pod."""
    assert set(RESOURCES.values()) == HANDLED - {("", "bindings")}
