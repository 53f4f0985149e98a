"""GGUF's block types: how a block's bytes split into named parts, and what the parts mean. NumPy only.

This is the only description of these types: files are decoded by it, and both backends pack by it.
`block_type` says what a type is, `quants` and `iquants` take blocks apart, `table` lists the types. Sources:
the GGUF format page (docs/gguf.md) and ggml's `ggml-common.h`; for MXFP4's scales the OCP Microscaling
Formats specification 1.0.
"""
