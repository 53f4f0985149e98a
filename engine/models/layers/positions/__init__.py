"""How a model knows positions: rope, ALiBi, sinusoids, embeddings, biases by distance."""
