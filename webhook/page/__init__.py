"""The page that shows what the reconciler does: a small model, rendered to HTML by pure functions, and its serving."""
