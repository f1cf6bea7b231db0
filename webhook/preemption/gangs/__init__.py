"""Gangs as preemptors: members that are placed together, and who goes for them."""
