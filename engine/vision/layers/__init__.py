"""Parts of vision encoders: towers, convolutions, resamplers, and projectors to the language model."""
