// Q2_K: 16 bytes scale | min << 4, 64 bytes of 2-bit values, d f16, dmin f16; 84 bytes aligned to 4.
// Part p: half h = p / 4 of the 256 values, 8 bytes at l = 8 (p % 4) of it: values l..l+7 of its four planes of 32.
struct Block {
  enum { VALUES = 256, BYTES = 84, PARTS = 8, RUNS = 4, RUN = 8, STRIDE = 32, OFFSETS = 1 };
  float d, dmin;
  uint32_t raw[2];
  uint32_t scales;  // a byte a run
  static LI_FN int first(int part) { return 128 * (part >> 2) + 8 * (part & 3); }
  LI_FN void load(LI_IN(uint8_t) p, int part, int place) {
    int h = part >> 2, l = 8 * (part & 3);
    uint32_t head = load_u32(p + 80);
    d = f16_bits(head & 0xffff);
    dmin = f16_bits(head >> 16);
    raw[0] = load_u32(p + 16 + 32 * h + l);
    raw[1] = load_u32(p + 20 + 32 * h + l);
    scales = 0;
    LI_UNROLL for (int i = 0; i < 4; i++) scales |= load_u8(p + 8 * h + 2 * i + (l >> 4)) << (8 * i);
  }
  LI_FN void open(int part, int run) {}
  LI_FN float value(int part, int run, int j) { return float((raw[j >> 2] >> (8 * (j & 3) + 2 * run)) & 3); }
  LI_FN float scale(int part, int run) { return d * float((scales >> (8 * run)) & 15); }
  LI_FN float offset(int part, int run) { return -dmin * float((scales >> (8 * run + 4)) & 15); }
};
