// y (n_pairs, n_out): pair i is row i / share of x times matrix experts[i] of W (n_experts, n_out, n_in), whose blocks
// are read where they are. Template: ROWS, GROUPS. sizes = [n_out, n_in, share]. Grid: rows in x, pairs in z.
const int lane = thread_index_in_simdgroup;
const int n_out = sizes[0], n_in = sizes[1];
const int pair = threadgroup_position_in_grid.z;
const int row = (threadgroup_position_in_grid.x * GROUPS + simdgroup_index_in_threadgroup) * ROWS;
const int n_rows = n_out - row < ROWS ? n_out - row : ROWS;
float acc[ROWS];
LI_UNROLL for (int i = 0; i < ROWS; i++) acc[i] = 0.0f;
if (n_rows > 0) {
  const int64_t first = (int64_t(experts[pair]) * n_out + row) * (n_in / Block::VALUES);
  add_products<Block, ROWS, 1>(LI_BYTES(w) + first * Block::BYTES, first, n_rows, x + int64_t(pair / sizes[2]) * n_in,
                               1, n_in, lane, acc);
}
LI_UNROLL for (int r = 0; r < ROWS; r++) {
  float sum = simd_sum(acc[r]);
  if (lane == 0 && r < n_rows) y[int64_t(pair) * n_out + row + r] = sum;
}
