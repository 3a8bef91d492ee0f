// Q4_K: d f16, dmin f16, 12 bytes of 6-bit scales and mins, 128 bytes of nibbles; 144 bytes aligned to 16.
// Part p: pair p / 2 of sub-blocks (low and high nibbles of 32 bytes), 16 of its bytes: 32 values by two 16-byte loads.
struct Block {
  enum { VALUES = 256, BYTES = 144, PARTS = 8, RUNS = 2, RUN = 16, STRIDE = 32, OFFSETS = 1 };
  uint32_t head[4];
  uint32_t raw[4];
  static LI_FN int first(int part) { return 64 * (part >> 1) + 16 * (part & 1); }
  LI_FN void load(LI_IN(uint8_t) p, int part, int place) {
    load_u128(p, head);
    load_u128(p + 16 + 16 * part, raw);
  }
  LI_FN void open(int part, int run) {}
  LI_FN float value(int part, int run, int j) { return float((raw[j >> 2] >> (8 * (j & 3) + 4 * run)) & 15); }
  LI_FN float scale(int part, int run) { return f16_bits(head[0] & 0xffff) * k_scale(head + 1, (part & 6) + run); }
  LI_FN float offset(int part, int run) { return -f16_bits(head[0] >> 16) * k_min(head + 1, (part & 6) + run); }
};
