"""The experiments of the paper, and what goes beyond them: every figure and every number, from the library itself."""
