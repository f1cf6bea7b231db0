"""Stand-ins for the components around an API server; each is an ordinary client and can be left out."""
