// y (n_rows, n_in) of type T: rows of W decoded. Template: T, GATHER. Row i is ids[i], or first + i without GATHER.
// sizes = [n_in, first, threads a row]. Grid: a thread for each unit of a row, rounded up to `threads a row`, row by row
// in x (there may be more rows than CUDA allows in y).
const int i = thread_position_in_grid.x / sizes[2], unit = thread_position_in_grid.x % sizes[2];
const int n_in = sizes[0];
if (unit < n_in / Block::VALUES * Block::PARTS) {
  const int64_t row = GATHER ? int64_t(ids[i]) : int64_t(sizes[1]) + i;
  const int block = unit / Block::PARTS, part = unit % Block::PARTS;
  const int64_t at_block = row * (n_in / Block::VALUES) + block;
  Block b;
  b.load(LI_BYTES(w) + at_block * Block::BYTES, part, int(at_block & 3));
  const int64_t at = int64_t(i) * n_in + block * Block::VALUES + Block::first(part);
  LI_UNROLL for (int run = 0; run < Block::RUNS; run++) {
    b.open(part, run);
    LI_UNROLL for (int j = 0; j < Block::RUN; j++)
      y[at + Block::STRIDE * run + j] = T(b.scale(part, run) * b.value(part, run, j) + b.offset(part, run));
  }
}
