"""Small passes that show whether a device computes right: for `selftest`, and at the first use of a GPU."""
