"""Recurrences in chunks of 64 tokens, as batched matrix products over all sequences and heads."""
