// Q6_K: 128 bytes of low nibbles, 64 bytes of upper 2 bits, 16 int8 scales, d f16; d * scale * (q - 32).
// 210 bytes aligned to 2. Parts as in Q2_K: 8 bytes of each half's two rows of nibbles, 8 bytes of its upper bits.
struct Block {
  enum { VALUES = 256, BYTES = 210, PARTS = 8, RUNS = 4, RUN = 8, STRIDE = 32, OFFSETS = 0 };
  float d;
  uint32_t low[4], high[2];
  uint32_t scales;  // a byte a run
  uint32_t now[2];  // the run's values, a byte each
  static LI_FN int first(int part) { return 128 * (part >> 2) + 8 * (part & 3); }
  LI_FN void load(LI_IN(uint8_t) p, int part, int place) {
    int h = part >> 2, l = 8 * (part & 3);
    d = f16_bits(load_u16(p + 208));
    LI_UNROLL for (int i = 0; i < 2; i++) {
      low[i] = load_u32_by2(p + 64 * h + l + 4 * i);
      low[2 + i] = load_u32_by2(p + 64 * h + 32 + l + 4 * i);
      high[i] = load_u32_by2(p + 128 + 32 * h + l + 4 * i);
    }
    scales = 0;
    LI_UNROLL for (int i = 0; i < 4; i++) scales |= load_u8(p + 192 + 8 * h + 2 * i + (l >> 4)) << (8 * i);
  }
  LI_FN void open(int part, int run) {
    LI_UNROLL for (int i = 0; i < 2; i++) {
      uint32_t nibbles = ((run & 1) ? low[2 + i] : low[i]) >> (4 * (run >> 1));
      now[i] = (nibbles & 0x0f0f0f0f) | (((high[i] >> (2 * run)) & 0x03030303) << 4);
    }
  }
  LI_FN float value(int part, int run, int j) { return byte_of(now[j >> 2], j) - 32.0f; }
  LI_FN float scale(int part, int run) { return d * float(signed_byte(scales >> (8 * run))); }
  LI_FN float offset(int part, int run) { return 0.0f; }
};
