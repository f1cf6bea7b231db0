"""Looking at a cluster that runs: what the policies would refuse of it, and what is wrong with it. Writes nothing."""
