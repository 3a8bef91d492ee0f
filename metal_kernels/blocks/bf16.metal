// bfloat16, the upper half of a float32: "blocks" of 4 values, 8 bytes aligned to 4.
struct Block {
  enum { VALUES = 4, BYTES = 8, PARTS = 1, RUNS = 1, RUN = 4, STRIDE = 4, OFFSETS = 0 };
  uint32_t raw[2];
  static LI_FN int first(int part) { return part * VALUES; }
  LI_FN void load(LI_IN(uint8_t) p, int part, int place) { raw[0] = load_u32(p); raw[1] = load_u32(p + 4); }
  LI_FN void open(int part, int run) {}
  LI_FN float value(int part, int run, int j) { return f32_bits((j & 1) ? raw[j >> 1] & 0xffff0000 : raw[j >> 1] << 16); }
  LI_FN float scale(int part, int run) { return 1.0f; }
  LI_FN float offset(int part, int run) { return 0.0f; }
};
