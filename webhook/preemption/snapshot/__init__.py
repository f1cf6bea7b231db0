"""The cluster in columns, one row a node and one row a pod, changed in place by single-object events."""
