"""How objects and the API itself are shown: media types, tables, discovery, OpenAPI."""
