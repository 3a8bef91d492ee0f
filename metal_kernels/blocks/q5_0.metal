// Q5_0: d f16, 32 fifth bits, 16 bytes of nibbles; d * (q - 16). 22 bytes aligned to 2.
// A lane takes 8 bytes of nibbles; both lanes of a block read its fifth bits.
struct Block {
  enum { VALUES = 32, BYTES = 22, PARTS = 2, RUNS = 2, RUN = 8, STRIDE = 16, OFFSETS = 1 };
  float d;
  uint32_t high;
  uint32_t raw[2];
  uint32_t now[2];  // the run's values, a byte each
  static LI_FN int first(int part) { return 8 * part; }
  LI_FN void load(LI_IN(uint8_t) p, int part, int place) {
    d = f16_bits(load_u16(p));
    high = load_u32_by2(p + 2) >> (8 * part);
    raw[0] = load_u32_by2(p + 6 + 8 * part);
    raw[1] = load_u32_by2(p + 10 + 8 * part);
  }
  LI_FN void open(int part, int run) {
    LI_UNROLL for (int i = 0; i < 2; i++) {
      const uint32_t fifth = bits_to_bytes((high >> (16 * run + 4 * i)) & 15);
      now[i] = ((raw[i] >> (4 * run)) & 0x0f0f0f0f) | (fifth << 4);
    }
  }
  LI_FN float value(int part, int run, int j) { return byte_of(now[j >> 2], j); }
  LI_FN float scale(int part, int run) { return d; }
  LI_FN float offset(int part, int run) { return -16.0f * d; }
};
