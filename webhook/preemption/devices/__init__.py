"""Devices for one node: what is published there, what is taken, and whether claims can be allocated together."""
