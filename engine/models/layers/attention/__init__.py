"""Attention other than the usual: latent, compressed, differential, over chosen positions, by experts."""
