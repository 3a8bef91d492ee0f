// IQ4_NL: d f16, 16 bytes of nibbles that index a table of 16 values; d * table[q]. 18 bytes aligned to 2.
LI_TABLE float IQ4_VALUES[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
struct Block {
  enum { VALUES = 32, BYTES = 18, PARTS = 2, RUNS = 2, RUN = 8, STRIDE = 16, OFFSETS = 0 };
  float d;
  uint32_t raw[2];
  static LI_FN int first(int part) { return 8 * part; }
  LI_FN void load(LI_IN(uint8_t) p, int part, int place) {
    d = f16_bits(load_u16(p));
    raw[0] = load_u32_by2(p + 2 + 8 * part);
    raw[1] = load_u32_by2(p + 6 + 8 * part);
  }
  LI_FN void open(int part, int run) {}
  LI_FN float value(int part, int run, int j) { return IQ4_VALUES[(raw[j >> 2] >> (8 * (j & 3) + 4 * run)) & 15]; }
  LI_FN float scale(int part, int run) { return d; }
  LI_FN float offset(int part, int run) { return 0.0f; }
};
