"""Models that are mixtures of experts in every size, whose layers all attend to the whole text."""
