"""Devices for one node: what is published and taken, what claims can be allocated."""
