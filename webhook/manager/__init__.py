"""One process of giveway: what `serve`, `reconcile` and `run` assemble, and how it starts, reloads and ends."""
