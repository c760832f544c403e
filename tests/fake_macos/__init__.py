"""A machine like macOS, on Linux: what Linux alone has is missing, and libproc answers."""
