"""Llama with one part another: its activation, its norms, its positions, or layers of different sizes."""
