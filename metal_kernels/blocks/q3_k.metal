// Q3_K: 32 bytes of third bits (not set: minus 4), 64 bytes of 2-bit values, 12 bytes of 6-bit scales, d f16.
// 110 bytes aligned to 2. Parts as in Q2_K; a byte of third bits serves both halves, so two lanes read it.
struct Block {
  enum { VALUES = 256, BYTES = 110, PARTS = 8, RUNS = 4, RUN = 8, STRIDE = 32, OFFSETS = 0 };
  float d;
  uint32_t raw[2], high[2];
  uint32_t scales;   // a byte a run
  uint32_t now[2];   // the run's values, a byte each
  static LI_FN int first(int part) { return 128 * (part >> 2) + 8 * (part & 3); }
  LI_FN void load(LI_IN(uint8_t) p, int part, int place) {
    int h = part >> 2, l = 8 * (part & 3);
    d = f16_bits(load_u16(p + 108));
    LI_UNROLL for (int i = 0; i < 2; i++) {
      high[i] = load_u32_by2(p + l + 4 * i) >> (4 * h);
      raw[i] = load_u32_by2(p + 32 + 32 * h + l + 4 * i);
    }
    scales = 0;
    LI_UNROLL for (int i = 0; i < 4; i++) {
      int s = 8 * h + 2 * i + (l >> 4);
      uint32_t low = (load_u8(p + 96 + (s & 7)) >> (4 * h)) & 15;
      scales |= (low | (((load_u8(p + 104 + (s & 3)) >> (2 * (s >> 2))) & 3) << 4)) << (8 * i);
    }
  }
  LI_FN void open(int part, int run) {
    LI_UNROLL for (int i = 0; i < 2; i++)
      now[i] = ((raw[i] >> (2 * run)) & 0x03030303) | (((high[i] >> run) & 0x01010101) << 2);
  }
  LI_FN float value(int part, int run, int j) { return byte_of(now[j >> 2], j) - 4.0f; }
  LI_FN float scale(int part, int run) { return d * float(int((scales >> (8 * run)) & 63) - 32); }
  LI_FN float offset(int part, int run) { return 0.0f; }
};
