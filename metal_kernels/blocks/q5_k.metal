// Q5_K: as Q4_K with 32 bytes of fifth bits before the nibbles; 176 bytes aligned to 16.
// Bit s of byte l is the fifth bit of value l of sub-block s: four lanes read each byte.
struct Block {
  enum { VALUES = 256, BYTES = 176, PARTS = 8, RUNS = 2, RUN = 16, STRIDE = 32, OFFSETS = 1 };
  uint32_t head[4];
  uint32_t raw[4], high[4];
  uint32_t now[4];  // the run's values, a byte each
  static LI_FN int first(int part) { return 64 * (part >> 1) + 16 * (part & 1); }
  LI_FN void load(LI_IN(uint8_t) p, int part, int place) {
    load_u128(p, head);
    load_u128(p + 16 + 16 * (part & 1), high);
    load_u128(p + 48 + 16 * part, raw);
    LI_UNROLL for (int i = 0; i < 4; i++) high[i] >>= part & 6;
  }
  LI_FN void open(int part, int run) {
    LI_UNROLL for (int i = 0; i < 4; i++)
      now[i] = ((raw[i] >> (4 * run)) & 0x0f0f0f0f) | (((high[i] >> run) & 0x01010101) << 4);
  }
  LI_FN float value(int part, int run, int j) { return byte_of(now[j >> 2], j); }
  LI_FN float scale(int part, int run) { return f16_bits(head[0] & 0xffff) * k_scale(head + 1, (part & 6) + run); }
  LI_FN float offset(int part, int run) { return -f16_bits(head[0] >> 16) * k_min(head + 1, (part & 6) + run); }
};
