"""What is counted of the policies in use."""

import time

import msgspec
from prometheus_client import CollectorRegistry, generate_latest

from tests.admission.builders import make_policy
from webhook.manager.policy_metrics import PolicyMetrics
from webhook.policy.model.match import RequestMatch
from webhook.policy.model.policies import Policies
from webhook.policy.model.priority import PolicyException
from webhook.policy.shapes.yaml_nodes import SourcePosition


def test_exceptions_are_counted_as_of_the_scrape():
    """The metric says how many hold and how many are over."""
    registry = CollectorRegistry()
    here = SourcePosition("p.yaml", 1, 1)
    rows = tuple(
        PolicyException(
            match=RequestMatch(namespaces=("a",)), rules=("allowed",), reason="r", owner="o", until=end, source=here
        )
        for end in (time.time() + 60, time.time() - 60, 0.0)
    )
    policies = Policies(priority=(msgspec.structs.replace(make_policy("teams"), exceptions=rows),))
    PolicyMetrics(registry, lambda: policies)
    text = generate_latest(registry).decode()
    assert 'giveway_policy_exceptions{state="active"} 1.0' in text
    assert 'giveway_policy_exceptions{state="ended"} 2.0' in text
