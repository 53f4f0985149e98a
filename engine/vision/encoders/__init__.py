"""Vision encoders by the way they take a picture: as a grid of patches, as crops, as overlapping crops."""
