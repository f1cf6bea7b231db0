"""The log of evictions and of what plans intend, and the Lease in which it outlives a leader."""
