"""The TLS listener with reloaded certificates and policies, health, readiness and metrics."""
