// MXFP4: a power of two as a byte (bias 127), 16 bytes of E2M1 nibbles; 17 bytes, no alignment. A lane's 8 bytes are cut
// out of the two or three aligned words they lie in. So up to 3 bytes at a row's ends are fetched by its neighbour too.
// E2M1's three bits are the top of a float16's exponent and fraction, 2^14 too small: two values are put in place at a
// time, and no table is looked up. Scales from 2^114 on, which no model has, end there.
struct Block {
  enum { VALUES = 32, BYTES = 17, PARTS = 2, RUNS = 2, RUN = 8, STRIDE = 16, OFFSETS = 0 };
  float d;
  uint32_t raw[2];
  uint32_t now[4];  // the run's values as float16: j and j + 2 of each four share a word
  static LI_FN int first(int part) { return 8 * part; }
  LI_FN void load(LI_IN(uint8_t) p, int part, int place) {
    const uint32_t exponent = load_u8(p) + 14;
    d = f32_bits((exponent < 254 ? exponent : 254) << 23);
    const int k = (place + 1) & 3, shift = 8 * k;  // a block of 17 bytes begins at place modulo 4
    LI_IN(uint8_t) from = p + (1 + 8 * part - k);
    const uint32_t a = load_u32(from), b = load_u32(from + 4), c = load_u32(from + (k ? 8 : 4));
    raw[0] = (a >> shift) | ((b << 1) << (31 - shift));
    raw[1] = (b >> shift) | ((c << 1) << (31 - shift));
  }
  LI_FN void open(int part, int run) {
    LI_UNROLL for (int i = 0; i < 4; i++) {
      const uint32_t nibbles = raw[i >> 1] >> (8 * (i & 1) + 4 * run);
      now[i] = ((nibbles & 0x00070007) << 9) | ((nibbles & 0x00080008) << 12);
    }
  }
  LI_FN float value(int part, int run, int j) {
    return f16_bits((now[2 * (j >> 2) + (j & 1)] >> (8 * (j & 2))) & 0xffff);
  }
  LI_FN float scale(int part, int run) { return d; }
  LI_FN float offset(int part, int run) { return 0.0f; }
};
