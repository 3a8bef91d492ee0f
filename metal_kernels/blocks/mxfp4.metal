// MXFP4: a power of two as a byte (bias 127), 16 bytes of E2M1 nibbles. 17 bytes, no alignment: single-byte loads.
LI_TABLE float E2M1_VALUES[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
struct Block {
  enum { VALUES = 32, BYTES = 17, PARTS = 2, RUNS = 2, RUN = 8, STRIDE = 16, OFFSETS = 0 };
  float d;
  uint32_t raw[2];
  static LI_FN int first(int part) { return 8 * part; }
  LI_FN void load(LI_IN(uint8_t) p, int part) {
    uint32_t exponent = load_u8(p);
    d = f32_bits(exponent ? exponent << 23 : 0x00400000);  // 2^-127 is below the normal floats
    raw[0] = load_u32_by1(p + 1 + 8 * part);
    raw[1] = load_u32_by1(p + 5 + 8 * part);
  }
  LI_FN float value(int part, int run, int j) { return E2M1_VALUES[(raw[j >> 2] >> (8 * (j & 3) + 4 * run)) & 15]; }
  LI_FN float scale(int part, int run) { return d; }
  LI_FN float offset(int part, int run) { return 0.0f; }
};
