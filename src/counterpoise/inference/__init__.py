"""What held-out losses say: bounds of worst cases and of their differences, and which of several models to keep."""
