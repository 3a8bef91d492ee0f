// Attention of a few query rows over stored keys and values (f32, f16, q8_0, q4_0), a stretch of SPLIT slots a SIMD
// group; merge_attention.metal puts the stretches together. Sums and softmax are float32.
//
// Row m of key/value head g is token m / group, head g * group + m % group. One SIMD group takes ROWS of them, so a key
// is decoded once for all. 32 slots at a time: lane i scores slot i (no sums over lanes), then every lane owns some
// places of the values and walks the 32 slots, whose bytes it reads together with its neighbours.
// q (T, H, DK) float32; keys (G, capacity, row), values (G, capacity, row) in blocks; slopes (H).
// sizes = [T, H, G, start, n_slots, ring, window, chunk, capacity]; reals = [scale, softcap].
// V_IN_K: a value is the front of its key, and `values` is `keys` again.
// Slot s holds the largest position <= start + T - 1 that is s modulo ring.
// -> sums (T * H, n_splits, DV), stats (T * H, n_splits, 2): largest score, sum of exp(score - largest).
enum { STEP = 32 * VEC, OWN = (DV + STEP - 1) / STEP };
const float NONE = -3.0e38f;
const int lane = thread_index_in_simdgroup;
const int n_heads = sizes[1], group = sizes[1] / sizes[2], n_slots = sizes[4], last = sizes[3] + sizes[0] - 1;
const int split = threadgroup_position_in_grid.x, g = threadgroup_position_in_grid.z;
const int m0 = threadgroup_position_in_grid.y * ROWS;
const int n_rows = sizes[0] * group - m0 < ROWS ? sizes[0] * group - m0 : ROWS;
const int n_splits = (n_slots + SPLIT - 1) / SPLIT;
const int64_t k_row = DK / keys_as::Block::VALUES * keys_as::Block::BYTES;
const int64_t v_row = V_IN_K ? k_row : DV / values_as::Block::VALUES * values_as::Block::BYTES;

LI_SHARED float query[ROWS * DK];
LI_SHARED float share[ROWS * 32];
for (int i = lane; i < n_rows * DK; i += 32) {
  const int m = m0 + i / DK;
  query[i] = q[(int64_t(m / group) * n_heads + g * group + m % group) * DK + i % DK] * reals[0];
}
LI_BARRIER;
float top[ROWS], total[ROWS], acc[ROWS * OWN * VEC];
LI_UNROLL for (int r = 0; r < ROWS; r++) { top[r] = NONE; total[r] = 0.0f; }
LI_UNROLL for (int i = 0; i < ROWS * OWN * VEC; i++) acc[i] = 0.0f;

const int end = (split + 1) * SPLIT < n_slots ? (split + 1) * SPLIT : n_slots;
for (int s0 = split * SPLIT; s0 < end; s0 += 32) {
  const int slot = s0 + lane;
  float score[ROWS];
  LI_UNROLL for (int r = 0; r < ROWS; r++) score[r] = 0.0f;
  if (slot < end) {
    for (int u = 0; u < DK / keys_as::Block::VALUES * keys_as::Block::PARTS; u++) {
      const int block = u / keys_as::Block::PARTS, part = u % keys_as::Block::PARTS;
      keys_as::Block b;
      b.load(LI_BYTES(keys) + (int64_t(g) * sizes[8] + slot) * k_row + block * keys_as::Block::BYTES, part, 0);
      const int k = block * keys_as::Block::VALUES + keys_as::Block::first(part);
      LI_UNROLL for (int run = 0; run < keys_as::Block::RUNS; run++) {
        b.open(part, run);
        const float scale = b.scale(part, run), offset = b.offset(part, run);
        LI_UNROLL for (int j = 0; j < keys_as::Block::RUN; j++) {
          const float v = scale * b.value(part, run, j) + offset;
          LI_UNROLL for (int r = 0; r < ROWS; r++)
            if (r < n_rows) score[r] += v * query[r * DK + k + keys_as::Block::STRIDE * run + j];
        }
      }
    }
  }
  const int position = last - (last - slot) % sizes[5];
  LI_UNROLL for (int r = 0; r < ROWS; r++) {
    const int t = sizes[3] + (m0 + r) / group;
    bool seen = slot < end && r < n_rows && position <= t;
    if (sizes[6]) seen = seen && t - position < sizes[6];
    if (sizes[7]) seen = seen && t / sizes[7] == position / sizes[7];
    float s = score[r];
    if (SOFTCAP) s = reals[1] * tanh(s / reals[1]);
    if (ALIBI) s += r < n_rows ? slopes[g * group + (m0 + r) % group] * float(position - t) : 0.0f;
    const float largest = simd_max(seen ? s : NONE);
    const float now = largest > top[r] ? largest : top[r];
    const float factor = exp(top[r] - now), p = seen ? exp(s - now) : 0.0f;
    top[r] = now;
    total[r] = total[r] * factor + simd_sum(p);
    share[r * 32 + lane] = p;
    LI_UNROLL for (int i = 0; i < OWN * VEC; i++) acc[r * OWN * VEC + i] *= factor;
  }
  LI_BARRIER;
  const int n_here = end - s0 < 32 ? end - s0 : 32;
  for (int s = 0; s < n_here; s++) {
    LI_UNROLL for (int o = 0; o < OWN; o++) {
      const int d = STEP * o + VEC * lane;
      if (d < DV) {
        float v[VEC];
        values_as::Block::template values<VEC>(LI_BYTES(values) + (int64_t(g) * sizes[8] + s0 + s) * v_row, d, v);
        LI_UNROLL for (int r = 0; r < ROWS; r++) {
          LI_UNROLL for (int j = 0; j < VEC; j++) acc[(r * OWN + o) * VEC + j] += share[r * 32 + s] * v[j];
        }
      }
    }
  }
  LI_BARRIER;
}
LI_UNROLL for (int r = 0; r < ROWS; r++) {
  const int m = m0 + r;
  if (r < n_rows) {
    const int64_t at = (int64_t(m / group) * n_heads + g * group + m % group) * n_splits + split;
    if (lane == 0) { stats[2 * at] = top[r]; stats[2 * at + 1] = total[r]; }
    LI_UNROLL for (int o = 0; o < OWN; o++) {
      LI_UNROLL for (int j = 0; j < VEC; j++) {
        const int d = STEP * o + VEC * lane + j;
        if (d < DV) sums[at * DV + d] = acc[(r * OWN + o) * VEC + j];
      }
    }
  }
}
