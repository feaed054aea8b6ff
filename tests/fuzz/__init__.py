"""Inputs that nobody would choose, for every public entry, and a judge of what comes back."""
