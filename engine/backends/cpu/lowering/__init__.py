"""Lowering a model's operations to the kernel calls that a program replays."""
