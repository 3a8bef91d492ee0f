// Q4_0: d f16, 16 bytes of nibbles (low: values 0..15, high: 16..31); d * (q - 8). 18 bytes aligned to 2.
// A lane takes 8 bytes of nibbles: 16 values.
struct Block {
  enum { VALUES = 32, BYTES = 18, PARTS = 2, RUNS = 2, RUN = 8, STRIDE = 16, OFFSETS = 1 };
  float d;
  uint32_t raw[2];
  static LI_FN int first(int part) { return 8 * part; }
  LI_FN void load(LI_IN(uint8_t) p, int part, int place) {
    d = f16_bits(load_u16(p));
    raw[0] = load_u32_by2(p + 2 + 8 * part);
    raw[1] = load_u32_by2(p + 6 + 8 * part);
  }
  LI_FN void open(int part, int run) {}
  LI_FN float value(int part, int run, int j) { return float((raw[j >> 2] >> (8 * (j & 3) + 4 * run)) & 15); }
  LI_FN float scale(int part, int run) { return d; }
  LI_FN float offset(int part, int run) { return -8.0f * d; }
  // N (1, 2 or 4) neighbouring values of a row from place d, a multiple of N.
  template <int N> static LI_FN void values(LI_IN(uint8_t) row, int d, LI_THREAD float* to) {
    LI_IN(uint8_t) p = row + BYTES * (d / VALUES);
    const float scale = f16_bits(load_u16(p));
    const uint32_t bytes = load_bytes<N>(p + 2 + d % 16) >> (4 * (d / 16 % 2));
    LI_UNROLL for (int j = 0; j < N; j++) to[j] = scale * float(int((bytes >> (8 * j)) & 15) - 8);
  }
};
