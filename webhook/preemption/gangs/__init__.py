"""Gangs as preemptors: members placed together, and who goes for them."""
