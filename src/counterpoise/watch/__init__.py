"""Whether what comes in still is what a model was made for: the mix of contexts, new contexts, and their risks."""
