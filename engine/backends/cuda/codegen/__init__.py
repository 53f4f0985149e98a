"""From Python functions to machine code: instructions, specialising, compiling, keeping."""
