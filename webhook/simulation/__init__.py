"""What would happen: a cluster written to a file, and its future under some policies, in virtual time."""
