"""Headers of models: config.json and GGUF metadata, read with the type, range and default of each key."""
