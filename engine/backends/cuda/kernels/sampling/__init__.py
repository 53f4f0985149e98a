"""Drawing a token on the device."""
