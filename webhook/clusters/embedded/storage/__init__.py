"""Where objects are kept, and how they are looked up, selected and listed."""
