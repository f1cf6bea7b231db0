"""The API server: from a call through admission to the store and back, with or without HTTP."""
