"""The evictions: one log of what was evicted and of what plans intend, and the Lease in which it outlives a leader."""
