"""LoRA adapters on a loaded model: where each of their matrices belongs, and how it is added and removed."""
