"""YAML text to the typed model: trees with places, field tables, findings, checks between policies."""
