// Q8_0: d f16, 32 int8; d * q. 34 bytes aligned to 2. A lane takes 16 bytes.
struct Block {
  enum { VALUES = 32, BYTES = 34, PARTS = 2, RUNS = 2, RUN = 8, STRIDE = 8, OFFSETS = 0 };
  float d;
  uint32_t raw[4];
  static LI_FN int first(int part) { return 16 * part; }
  LI_FN void load(LI_IN(uint8_t) p, int part, int place) {
    d = f16_bits(load_u16(p));
    LI_UNROLL for (int i = 0; i < 4; i++) raw[i] = load_u32_by2(p + 2 + 16 * part + 4 * i);
  }
  LI_FN void open(int part, int run) {}
  LI_FN float value(int part, int run, int j) { return float(signed_byte(raw[2 * run + (j >> 2)] >> (8 * (j & 3)))); }
  LI_FN float scale(int part, int run) { return d; }
  LI_FN float offset(int part, int run) { return 0.0f; }
  // N (1, 2 or 4) neighbouring values of a row from place d, a multiple of N.
  template <int N> static LI_FN void values(LI_IN(uint8_t) row, int d, LI_THREAD float* to) {
    LI_IN(uint8_t) p = row + BYTES * (d / VALUES);
    const float scale = f16_bits(load_u16(p));
    const uint32_t bytes = load_bytes<N>(p + 2 + d % VALUES);
    LI_UNROLL for (int j = 0; j < N; j++) to[j] = scale * float(signed_byte(bytes >> (8 * j)));
  }
};
