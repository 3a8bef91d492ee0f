"""Markdown as it streams -> rows of styled text. Knows nothing of any screen: styles are names."""
