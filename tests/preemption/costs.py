"""The keys of costs that tests and benches share."""

from webhook.policy.model.victims import EvictionCost, LostWork

SAVED = "example.com/saved-at"
"""An annotation that says when work was saved."""
READY = [{"type": "Ready", "status": "True"}]
"""The conditions of a pod that is ready."""
EVERY = EvictionCost(
    readiness=True,
    group_restarts=True,
    deletion_cost=True,
    lost_work=LostWork(checkpoints=(SAVED,)),
    recent_evictions=3600.0,
    grace_period=True,
)
"""All costs at once."""
