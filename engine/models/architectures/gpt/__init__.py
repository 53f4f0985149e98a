"""GPT-2 and the models of its kind: layer norms with biases, plain feed-forward parts, positions or ALiBi."""
