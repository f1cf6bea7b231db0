"""giveway: priority and preemption policy for Kubernetes."""
