"""Desktop part."""
