"""Parts that take the place of attention and keep a state: convolutions, delta rules, scans, RWKV, LSTMs."""
