"""Tests of the sets of context distributions."""
