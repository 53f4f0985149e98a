"""Engine part."""
