"""Speculative decoding: who guesses the next tokens, and how a guess is checked without changing what is
written.
"""
