"""What the page shows of a reconciler: read off its state, never written to it."""
