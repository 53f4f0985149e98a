"""Dense models in which a layer has another order than Llama's: other norms, halves side by side, loops."""
