"""Speculative decoding: drafters propose tokens, and verification keeps the target model's distribution."""
