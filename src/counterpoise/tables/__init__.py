"""Tables: files in, columns, encoding, models kept."""
