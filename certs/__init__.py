"""Certificate authority, serving certificate, rotation and caBundle injection."""
