"""What `giveway doctor` looks for: pure functions over one read of the cluster, one subject a file."""
