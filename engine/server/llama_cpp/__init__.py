"""The smaller endpoints of llama.cpp's server: token ids, metrics, slots, and how far a prompt is read."""
