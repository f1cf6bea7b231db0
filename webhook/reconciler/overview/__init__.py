"""What the page shows of a reconciler, whose state is read and never written."""
