"""What to do for one preemptor: limits, exclusions and extenders around the decision."""
