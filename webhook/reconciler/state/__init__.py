"""What the watches show, with what was done but is not seen yet."""
