"""From a model's operations to the calls that a program replays."""
