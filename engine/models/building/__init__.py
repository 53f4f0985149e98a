"""From a `ModelConfig`, `TensorNames` and a checkpoint to a decoder: first a survey, then with weights."""
