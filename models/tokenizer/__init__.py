"""Text to token ids and back, from a GGUF file's metadata. Imports nothing but the error tree, `regex` and stdlib."""

from localinfer.models.tokenizer.stream import StreamDecoder, StreamState
from localinfer.models.tokenizer.tokenizer import Tokenizer

__all__ = ["StreamDecoder", "StreamState", "Tokenizer"]
