"""A cluster in a file: everything that decides, nothing that is secret."""
