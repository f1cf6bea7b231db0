"""The preemption decision, pure: snapshot, filters, eligibility, victims, ranking, plan."""
