// IQ4_XS: d f16, 16 upper scale bits pairs, 4 bytes of lower scale nibbles, 128 bytes of nibbles that index a table.
// 136 bytes aligned to 8. A part is a sub-block of 32: 16 bytes, low nibbles first.
LI_TABLE float IQ4_VALUES[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
struct Block {
  enum { VALUES = 256, BYTES = 136, PARTS = 8, RUNS = 2, RUN = 16, STRIDE = 16, OFFSETS = 0 };
  float d;
  uint32_t raw[4];
  static LI_FN int first(int part) { return 32 * part; }
  LI_FN void load(LI_IN(uint8_t) p, int part, int place) {
    uint32_t head = load_u32(p), low = load_u32(p + 4) >> (4 * part);
    uint32_t six = (low & 15) | (((head >> (16 + 2 * part)) & 3) << 4);
    d = f16_bits(head & 0xffff) * float(int(six) - 32);
    LI_UNROLL for (int i = 0; i < 4; i++) raw[i] = load_u32(p + 8 + 16 * part + 4 * i);
  }
  LI_FN void open(int part, int run) {}
  LI_FN float value(int part, int run, int j) { return IQ4_VALUES[(raw[j >> 2] >> (8 * (j & 3) + 4 * run)) & 15]; }
  LI_FN float scale(int part, int run) { return d; }
  LI_FN float offset(int part, int run) { return 0.0f; }
};
