"""Learn from data of different contexts when the future mix of contexts is uncertain."""
__version__ = "0.1.0.dev0"
