// y (n_x, n_out) = x (n_x, n_in) W^T [+ bias], W in blocks. Template: ROWS a SIMD group, NX >= n_x, GROUPS SIMD groups a
// threadgroup, BIAS. sizes = [n_out, n_in, n_x]. Grid: (32, GROUPS) threads for each ROWS * GROUPS rows.
const int lane = thread_index_in_simdgroup;
const int n_out = sizes[0], n_in = sizes[1], n_x = sizes[2];
const int row = (threadgroup_position_in_grid.x * GROUPS + simdgroup_index_in_threadgroup) * ROWS;
const int n_rows = n_out - row < ROWS ? n_out - row : ROWS;
float acc[ROWS * NX];
LI_UNROLL for (int i = 0; i < ROWS * NX; i++) acc[i] = 0.0f;
if (n_rows > 0) {
  const int64_t first = int64_t(row) * (n_in / Block::VALUES);
  add_products<Block, ROWS, NX>(LI_BYTES(w) + first * Block::BYTES, first, n_rows, x, n_x, n_in, lane, acc);
}
LI_UNROLL for (int r = 0; r < ROWS; r++) {
  LI_UNROLL for (int t = 0; t < NX; t++) {
    float sum = simd_sum(acc[r * NX + t]);
    if (lane == 0 && r < n_rows && t < n_x)
      y[int64_t(t) * n_out + row + r] = BIAS ? sum + bias[row + r] : sum;
  }
}
