"""What a policy set gives up of the one before it."""
