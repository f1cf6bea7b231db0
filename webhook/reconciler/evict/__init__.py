"""Every write to the API server."""
