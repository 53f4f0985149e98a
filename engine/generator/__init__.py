"""From a model to a stream of text: a request, the prompt, the loop, the stop conditions."""
