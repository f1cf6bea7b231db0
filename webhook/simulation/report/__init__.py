"""Answers: who runs, waits and was evicted, what differs between two sets of policies, as text, Markdown and HTML."""
