// Q4_1: d f16, m f16, 16 bytes of nibbles; d * q + m. 20 bytes aligned to 4. A lane takes 8 bytes of nibbles.
struct Block {
  enum { VALUES = 32, BYTES = 20, PARTS = 2, RUNS = 2, RUN = 8, STRIDE = 16, OFFSETS = 1 };
  float d, m;
  uint32_t raw[2];
  static LI_FN int first(int part) { return 8 * part; }
  LI_FN void load(LI_IN(uint8_t) p, int part, int place) {
    uint32_t head = load_u32(p);
    d = f16_bits(head & 0xffff);
    m = f16_bits(head >> 16);
    raw[0] = load_u32(p + 4 + 8 * part);
    raw[1] = load_u32(p + 8 + 8 * part);
  }
  LI_FN void open(int part, int run) {}
  LI_FN float value(int part, int run, int j) { return float((raw[j >> 2] >> (8 * (j & 3) + 4 * run)) & 15); }
  LI_FN float scale(int part, int run) { return d; }
  LI_FN float offset(int part, int run) { return m; }
};
