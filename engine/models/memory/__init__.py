"""How much memory a model takes, whether it fits, and which device it is loaded on."""
