"""Where objects are kept, and how they are looked up, selected, listed and kept over a restart."""
