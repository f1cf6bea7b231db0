"""Who is calling and what they may do, and what a client needs to call at all."""
