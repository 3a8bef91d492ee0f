// Gated delta rule over T tokens: memory *= decay; memory += rate * (v - memory k) k^T; y = memory q. One SIMD group a
// row (h, p) of the memory (H, P, N), held in registers, COLUMNS = ceil(N / 32) a lane.
// q and k (T, G, N) already scaled, v (T, H, P), decay and rate (T, H), memory (H, P, N).
// sizes = [T, H, P, N, G, tiled]. Grid: 32 threads in x, P in y, H in z. -> y (T, H, P), after (H, P, N)
const int lane = thread_index_in_simdgroup, p = threadgroup_position_in_grid.y, h = threadgroup_position_in_grid.z;
const int n_heads = sizes[1], n_rows = sizes[2], n = sizes[3], n_groups = sizes[4];
const int g = sizes[5] ? h % n_groups : h / (n_heads / n_groups);
const int64_t row = (int64_t(h) * n_rows + p) * n;
float m[COLUMNS];
LI_UNROLL for (int i = 0; i < COLUMNS; i++) m[i] = lane + 32 * i < n ? memory[row + lane + 32 * i] : 0.0f;
for (int t = 0; t < sizes[0]; t++) {
  const int64_t at = int64_t(t) * n_heads + h, shared_at = (int64_t(t) * n_groups + g) * n;
  float known = 0.0f;
  LI_UNROLL for (int i = 0; i < COLUMNS; i++) {
    m[i] *= decay[at];
    if (lane + 32 * i < n) known += m[i] * k[shared_at + lane + 32 * i];
  }
  const float error = rate[at] * (v[at * n_rows + p] - simd_sum(known));
  float sum = 0.0f;
  LI_UNROLL for (int i = 0; i < COLUMNS; i++) {
    const int j = lane + 32 * i;
    if (j < n) {
      m[i] += error * k[shared_at + j];
      sum += m[i] * q[shared_at + j];
    }
  }
  sum = simd_sum(sum);
  if (lane == 0) y[at * n_rows + p] = sum;
}
LI_UNROLL for (int i = 0; i < COLUMNS; i++)
  if (lane + 32 * i < n) after[row + lane + 32 * i] = m[i];
