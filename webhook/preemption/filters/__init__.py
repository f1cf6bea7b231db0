"""Kubernetes' filters over all nodes at once."""
