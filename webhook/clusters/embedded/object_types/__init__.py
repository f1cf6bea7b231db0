"""What objects look like: their fields, Kubernetes' defaults, and what is refused."""
