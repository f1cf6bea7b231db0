"""What to do for a preemptor: limits, exclusions and extenders around the decision."""
