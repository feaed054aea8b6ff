"""Statements about data not yet seen: how sure they are, and what they say in words."""
