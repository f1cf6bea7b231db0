"""Shapes: what may stand in a value of a policy file, and how it is read and described as JSON schema."""
