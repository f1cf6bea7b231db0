"""What if: changes of a cluster from outside, each at its time."""
