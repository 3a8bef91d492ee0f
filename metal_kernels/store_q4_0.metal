// x (n, 32) float32 -> n blocks of q4_0 as bytes: d = (the value of largest size, the first of equals) / -8 as f16,
// then min(15, trunc(x / d + 8.5)), value i low and value i + 16 high in byte i. Grid: 32 threads a block in x.
const int lane = thread_index_in_simdgroup, block = threadgroup_position_in_grid.x;
LI_SHARED int steps[32];
const float v = x[int64_t(block) * 32 + lane];
const float size = v < 0.0f ? -v : v;
const bool largest = size == simd_max(size);
const bool first = float(31 - lane) == simd_max(largest ? float(31 - lane) : -1.0f);
const float d = simd_sum(largest && first ? v : 0.0f) / -8.0f;
float inverse = d != 0.0f ? 1.0f / d : 0.0f;
if (inverse > 3.0e38f || inverse < -3.0e38f) inverse = 0.0f;
const int q = int(v * inverse + 8.5f);
steps[lane] = q < 0 ? 0 : q > 15 ? 15 : q;
LI_BARRIER;
if (lane < 16) y[int64_t(block) * 18 + 2 + lane] = uint8_t(steps[lane] | (steps[lane + 16] << 4));
if (lane < 2) y[int64_t(block) * 18 + lane] = uint8_t(f16_to_bits(d) >> (8 * lane));
