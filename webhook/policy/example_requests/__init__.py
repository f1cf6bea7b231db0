"""What policies let happen, shown by example requests that the engine is asked about."""
