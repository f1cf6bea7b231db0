"""Devices for one node: what is published, what is taken, what claims can be allocated."""
