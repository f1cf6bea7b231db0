"""Devices for one node: what is published and taken, and what claims can get."""
