// Rows of blocks times a few vectors, one SIMD group for ROWS rows: each byte of a row is fetched by that group alone,
// once for all NX vectors. Lane u of the group takes units u, u + 32, ... of the row, a unit being what Block::load
// takes: so neighbouring lanes read neighbouring bytes. Sums are float32.
//
// The value at place j of a run is scale * value(j) + offset, so a run costs one multiply-add a value and two a run:
// sum = scale * dot(values, x) + offset * sum(x). Four runs of 16 vectors stay a loop: unrolled, their loads of x are
// all moved to its front and take more registers than there are.

// acc (ROWS, NX) += rows (n_rows valid) times x (n_x valid rows of n_in). All pointers at the group's first row, whose
// blocks begin at block number `first` of the tensor.
template <typename B, int ROWS, int NX>
LI_FN void add_products(LI_IN(uint8_t) rows, int64_t first, int n_rows, LI_IN(float) x, int n_x, int n_in, int lane,
                        LI_THREAD float* acc) {
  const int64_t row_bytes = int64_t(n_in / B::VALUES) * B::BYTES;
  const int n_blocks = n_in / B::VALUES, n_units = n_blocks * B::PARTS, place = int(first & 3);
  for (int u = lane; u < n_units; u += 32) {
    const int block = u / B::PARTS, part = u % B::PARTS;
    B b[ROWS];
    LI_UNROLL for (int r = 0; r < ROWS; r++)
      if (r < n_rows) b[r].load(rows + row_bytes * r + int64_t(block) * B::BYTES, part, place + n_blocks * r + block);
    const int k = block * B::VALUES + B::first(part);
    LI_UNROLL_BY(NX < 16 || B::RUNS < 4 ? B::RUNS : 1) for (int run = 0; run < B::RUNS; run++) {
      LI_UNROLL for (int r = 0; r < ROWS; r++) b[r].open(part, run);
      LI_UNROLL for (int t = 0; t < NX; t++) {
        float v[B::RUN];
        LI_IN(float) xt = x + int64_t(t < n_x ? t : n_x - 1) * n_in + k + B::STRIDE * run;
        LI_UNROLL for (int j = 0; j < B::RUN; j += 4) load_f32x4(xt + j, v + j);
        float total = 0.0f;
        if (B::OFFSETS) { LI_UNROLL for (int j = 0; j < B::RUN; j++) total += v[j]; }
        LI_UNROLL for (int r = 0; r < ROWS; r++) {
          float dot = 0.0f;
          LI_UNROLL for (int j = 0; j < B::RUN; j++) dot += b[r].value(part, run, j) * v[j];
          acc[r * NX + t] += b[r].scale(part, run) * dot;
          if (B::OFFSETS) acc[r * NX + t] += b[r].offset(part, run) * total;
        }
      }
    }
  }
}
