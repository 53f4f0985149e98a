"""Models that are mixtures of experts in every size."""
