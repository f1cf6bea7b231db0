"""The cluster in columns, a row a node or a pod, changed by events."""
