// Stretches of attention put together: y (T * H, DV) from sums (T * H, n_splits, DV) and stats (T * H, n_splits, 2).
// sinks (H) are extra logits without a value (SINKS). sizes = [n_splits, H]. Grid: 32 threads in x, rows in y.
const int lane = thread_index_in_simdgroup, row = threadgroup_position_in_grid.y, n_splits = sizes[0];
float top = SINKS ? float(sinks[row % sizes[1]]) : -3.0e38f;
for (int s = 0; s < n_splits; s++) {
  const float other = stats[2 * (row * n_splits + s)];
  top = other > top ? other : top;
}
float total = SINKS ? exp(float(sinks[row % sizes[1]]) - top) : 0.0f;
for (int s = 0; s < n_splits; s++)
  total += stats[2 * (row * n_splits + s) + 1] * exp(stats[2 * (row * n_splits + s)] - top);
for (int d = lane; d < DV; d += 32) {
  float sum = 0.0f;
  for (int s = 0; s < n_splits; s++)
    sum += sums[(int64_t(row) * n_splits + s) * DV + d] * exp(stats[2 * (row * n_splits + s)] - top);
  y[int64_t(row) * DV + d] = sum / total;
}
