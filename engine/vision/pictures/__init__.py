"""Pictures before any encoder: pixels of files, sizes, tiles and crops."""
