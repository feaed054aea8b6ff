"""Estimators that drop into scikit-learn; the package exports them."""
