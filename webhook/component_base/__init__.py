"""What every long-running process has, as in Kubernetes' component-base: log, probes, metrics, supervised tasks."""
