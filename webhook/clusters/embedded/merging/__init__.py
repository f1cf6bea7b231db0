"""How a change meets an object: the kinds of patches, server-side apply, and who manages which field."""
