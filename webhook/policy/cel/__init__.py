"""CEL behind one door: programs compiled and type-checked at load, and bounded in what a run may cost."""
