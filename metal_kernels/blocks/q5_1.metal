// Q5_1: d f16, m f16, 32 fifth bits, 16 bytes of nibbles; d * q + m. 24 bytes aligned to 4.
// A lane takes 8 bytes of nibbles; both lanes of a block read its fifth bits.
struct Block {
  enum { VALUES = 32, BYTES = 24, PARTS = 2, RUNS = 2, RUN = 8, STRIDE = 16, OFFSETS = 1 };
  float d, m;
  uint32_t high;
  uint32_t raw[2];
  uint32_t now[2];  // the run's values, a byte each
  static LI_FN int first(int part) { return 8 * part; }
  LI_FN void load(LI_IN(uint8_t) p, int part, int place) {
    uint32_t head = load_u32(p);
    d = f16_bits(head & 0xffff);
    m = f16_bits(head >> 16);
    high = load_u32(p + 4) >> (8 * part);
    raw[0] = load_u32(p + 8 + 8 * part);
    raw[1] = load_u32(p + 12 + 8 * part);
  }
  LI_FN void open(int part, int run) {
    LI_UNROLL for (int i = 0; i < 2; i++) {
      const uint32_t fifth = bits_to_bytes((high >> (16 * run + 4 * i)) & 15);
      now[i] = ((raw[i] >> (4 * run)) & 0x0f0f0f0f) | (fifth << 4);
    }
  }
  LI_FN float value(int part, int run, int j) { return byte_of(now[j >> 2], j); }
  LI_FN float scale(int part, int run) { return d; }
  LI_FN float offset(int part, int run) { return m; }
};
