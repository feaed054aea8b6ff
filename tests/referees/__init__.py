"""Independent referee implementations, used only by the tests."""
