"""Mixtures of experts in which some layers attend to windows, chunks or chosen blocks of the text only."""
