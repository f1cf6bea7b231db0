"""Policy files: YAML text to the typed model, checks between fields and between policies, the JSON schema."""
