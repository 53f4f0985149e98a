"""Attention to what a small latent holds, as in DeepSeek since V2; with indexers that choose positions."""
