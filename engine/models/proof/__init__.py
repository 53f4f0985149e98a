"""Small passes that check whether a device computes correctly: `selftest`, and the first use of a GPU."""
