"""Kubernetes' vocabulary: slim typed objects, quantities, selectors; client, caches, events, lease."""
