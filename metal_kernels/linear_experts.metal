// y (n_rows, n_out) = rows of x (n_rows / share, n_in), sorted by expert, times W (n_experts, n_out, n_in), whose blocks
// are read where they are. tiles (n_tiles, 3): expert, first row, rows of up to NX neighbours of that expert (0: nothing
// to do). Row i is row i / share of x; share is above 1 only where tiles have one row. Template: ROWS, NX, GROUPS.
// sizes = [n_out, n_in, share]. Grid: rows of W in x, tiles in z.
const int lane = thread_index_in_simdgroup;
const int n_out = sizes[0], n_in = sizes[1];
const int tile = 3 * threadgroup_position_in_grid.z;
const int from = tiles[tile + 1], n_x = tiles[tile + 2];
const int row = (threadgroup_position_in_grid.x * GROUPS + simdgroup_index_in_threadgroup) * ROWS;
const int n_rows = n_x == 0 ? 0 : n_out - row < ROWS ? n_out - row : ROWS;
float acc[ROWS * NX];
LI_UNROLL for (int i = 0; i < ROWS * NX; i++) acc[i] = 0.0f;
if (n_rows > 0) {
  const int64_t first = (int64_t(tiles[tile]) * n_out + row) * (n_in / Block::VALUES);
  add_products<Block, ROWS, NX>(LI_BYTES(w) + first * Block::BYTES, first, n_rows, x + int64_t(from / sizes[2]) * n_in,
                                n_x, n_in, lane, acc);
}
LI_UNROLL for (int r = 0; r < ROWS; r++) {
  LI_UNROLL for (int t = 0; t < NX; t++) {
    float sum = simd_sum(acc[r * NX + t]);
    if (lane == 0 && r < n_rows && t < n_x) y[int64_t(from + t) * n_out + row + r] = sum;
  }
}
