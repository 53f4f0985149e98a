"""The operating system and the interpreter: folders, whole files, compiled code, garbage, yielding cores."""
