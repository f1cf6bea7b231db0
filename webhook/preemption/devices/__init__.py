"""Devices for one node: what is published, what is taken, and whether claims can be allocated together."""
