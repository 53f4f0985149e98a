"""Models and devices."""
