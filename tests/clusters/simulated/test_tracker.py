"""The objects of a simulated cluster and the caches that are told of them."""

from webhook.clusters.simulated.objects import ClusterObjects
from webhook.clusters.simulated.tracker import ObjectTracker
from webhook.kube.object_cache import ObjectCache
from webhook.kube.resources import POD, RESOURCE_QUOTA


def test_a_cache_of_a_kind_that_no_file_holds_is_in_sync():
    """Whoever watches one more kind does not wait for it: there is none of it."""
    tracker = ObjectTracker(ClusterObjects(0.0))
    pods, quotas = ObjectCache("/api/v1/pods"), ObjectCache("/api/v1/resourcequotas")
    tracker.cache(POD).followers.append(pods)
    tracker.cache(RESOURCE_QUOTA).followers.append(quotas)
    tracker.fill()
    assert (pods.synced.is_set(), quotas.synced.is_set()) == (True, True)
