"""A control plane in one process, for trying and testing only."""
