"""The preemption decision, pure: snapshot, filters, victims, extenders, ranking, result."""
