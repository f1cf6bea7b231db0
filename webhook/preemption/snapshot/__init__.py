"""The cluster in columns, a row a node and a row a pod, changed by single-object events."""
