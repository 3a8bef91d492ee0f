"""Upper bounds on speed from two figures of a device: bytes/s of memory and FLOP/s.

A decode step reads every touched weight once for the whole batch and each sequence's KV: `D + b * L * k` bytes. A
prefill multiplies: 2 FLOPs a weight and token, plus attention. Whichever takes longer is the bound.
"""

from __future__ import annotations


def step_bytes(weight_bytes: float, token_bytes: float, context: float, batch: int = 1) -> float:
    """Bytes one decode step reads: weights once, and `context` tokens of KV for each sequence."""
    return weight_bytes + batch * context * token_bytes


def read_per_output_token(weight_bytes: float, token_bytes: float, context: float, batch: int = 1) -> float:
    """Bytes read for each token put out: the weights are shared by the batch, the KV is not."""
    return step_bytes(weight_bytes, token_bytes, context, batch) / batch


def kv_equals_weights_batch(weight_bytes: int, token_bytes: int, context: int) -> int:
    """The batch from which a step reads more KV than weights."""
    return -(-weight_bytes // (context * token_bytes))


def memory_floor_s(n_bytes: float, bandwidth: float) -> float:
    """Seconds to read n_bytes once: no step that reads them can be faster."""
    return n_bytes / bandwidth


def bandwidth_utilisation(n_bytes: float, bandwidth: float, measured_s: float) -> float:
    """Share of the bandwidth (MBU) that a measured step reached."""
    return n_bytes / bandwidth / measured_s


def compute_floor_s(flops: float, peak: float) -> float:
    """Seconds that `flops` operations take at the device's peak."""
    return flops / peak


def attention_pairs(chunk: int, history: int) -> int:
    """Query-key pairs of a causal chunk after `history` tokens."""
    return chunk * history + chunk * (chunk + 1) // 2


def window_pairs(chunk: int, history: int, window: int) -> int:
    """The same where a token sees at most `window` positions, itself included."""
    growing = max(0, min(chunk, window - history))  # tokens whose window is not full yet
    return attention_pairs(growing, history) + (chunk - growing) * window


def mixed_step_s(
    weight_bytes: float, params: float, bandwidth: float, peak: float, decode: int, chunk: int = 0
) -> float:
    """A step of `decode` decoding sequences and a prefill chunk: memory or compute, whichever takes longer."""
    return max(memory_floor_s(weight_bytes, bandwidth), compute_floor_s(2 * params * (decode + chunk), peak))


def balance_tokens(weight_bytes: float, params: float, bandwidth: float, peak: float) -> float:
    """Tokens in a step at which memory and compute take equally long."""
    return memory_floor_s(weight_bytes, bandwidth) / compute_floor_s(2 * params, peak)


def batch_step_s(batch: int, kv: float, weights: float, bandwidth: float) -> float:
    """A memory-bound step: the batch's KV (bytes each) and the weights."""
    return (batch * kv + weights) / bandwidth


def compute_step_s(batch: int, kv: float, params: float, bandwidth: float, peak: float) -> float:
    """A step whose matrices are compute-bound while attention stays memory-bound: the two add up."""
    return batch * kv / bandwidth + 2 * batch * params / peak


def request_s(queue_s: float, prefill_s: float, token_s: float, output: int) -> float:
    """An answer's time: the first token comes with the prefill, `output - 1` more follow."""
    return queue_s + prefill_s + (output - 1) * token_s


def amdahl(fraction: float, speedup: float) -> float:
    """Whole speedup when a fraction of the time gets `speedup` times faster."""
    return 1 / ((1 - fraction) + fraction / speedup)


def prefill_chunks(prompt: int, chunk: int) -> int:
    """Chunks that a prompt is fed in."""
    return -(-prompt // chunk)


def paged_tok_s(read_bytes: float, stored_bytes: float, bandwidth: float, link: float) -> float:
    """Tokens/s when a token reads read_bytes from memory, and meanwhile stored_bytes come over a slower link."""
    return 1 / max(read_bytes / bandwidth, stored_bytes / link)
