"""Plain matrices changed while they are loaded: quantised, or read the other way round."""
