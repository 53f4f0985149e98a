"""One request on its connection: who may send it, its body, its answer, whole or streamed, its bounds."""
