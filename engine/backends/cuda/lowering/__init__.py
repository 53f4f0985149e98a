"""From a model's operations to the kernel calls of a pass."""
