"""What holds for every test."""

from hypothesis import settings

# The same examples on every run: a failure found once is found again. Fuzzing with fresh ones is a run of its own.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")
