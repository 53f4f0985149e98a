"""From Python kernel functions to machine code: instructions, specialisation, compilation, cache."""
