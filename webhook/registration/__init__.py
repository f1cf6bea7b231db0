"""The two webhook configurations: which requests the API server sends, and who writes that down."""
