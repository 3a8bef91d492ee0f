// x (n, 32) float32 -> n blocks of q8_0 as bytes: d = max |x| / 127 as f16, then x / d rounded, halves away from zero.
// Grid: 32 threads a block in x (a long chunk has more blocks than CUDA allows in y).
const int lane = thread_index_in_simdgroup, block = threadgroup_position_in_grid.x;
const float v = x[int64_t(block) * 32 + lane];
const float d = simd_max(v < 0.0f ? -v : v) / 127.0f;
float inverse = d > 0.0f ? 1.0f / d : 0.0f;
if (inverse > 3.0e38f) inverse = 0.0f;
const float size = v < 0.0f ? -v * inverse : v * inverse;
const float whole = floor(size);
const int steps = int(whole) + (size - whole >= 0.5f ? 1 : 0);
y[int64_t(block) * 34 + 2 + lane] = uint8_t(v < 0.0f ? -steps : steps);
if (lane < 2) y[int64_t(block) * 34 + lane] = uint8_t(f16_to_bits(d) >> (8 * lane));
