"""How much memory a model takes, whether it fits, and the device that it goes to."""
