"""What the machine and the system are to the engine: folders, compiled code, memory of the interpreter,
cores that are lent.
"""
