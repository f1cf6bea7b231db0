"""The model to verdicts: policies compiled once, asked for every request."""
