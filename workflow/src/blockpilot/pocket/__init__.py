"""The embedded pair's invented world: three seeded grammars and a tokenizer for them."""
