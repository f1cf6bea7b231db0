"""What plays a cluster: one model of its controllers, kubelets and budgets, and what drives it."""
