// Loads put together from narrower ones, where a block type's alignment allows no wider load.
LI_FN uint32_t load_u32_by2(LI_IN(uint8_t) p) { return load_u16(p) | (load_u16(p + 2) << 16); }
LI_FN int signed_byte(uint32_t bits) { return int(bits << 24) >> 24; }
// Byte j modulo 4 of four values that were unpacked together: one conversion where a GPU takes bytes.
LI_FN float byte_of(uint32_t word, int j) { return float((word >> (8 * (j & 3))) & 255); }
// Four bits, each at the bottom of a byte.
LI_FN uint32_t bits_to_bytes(uint32_t bits) { return (bits * 0x00204081) & 0x01010101; }
// N (1, 2 or 4) bytes, the first in the lowest bits; even N at even addresses.
template <int N> LI_FN uint32_t load_bytes(LI_IN(uint8_t) p) {
  return N == 1 ? load_u8(p) : N == 2 ? load_u16(p) : load_u32_by2(p);
}
