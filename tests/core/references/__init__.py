"""Tests of the reference risks."""
