// Loads put together from narrower ones, where a block type's alignment allows no wider load.
LI_FN uint32_t load_u32_by2(LI_IN(uint8_t) p) { return load_u16(p) | (load_u16(p + 2) << 16); }
LI_FN uint32_t load_u32_by1(LI_IN(uint8_t) p) {
  return load_u8(p) | (load_u8(p + 1) << 8) | (load_u8(p + 2) << 16) | (load_u8(p + 3) << 24);
}
LI_FN int signed_byte(uint32_t bits) { return int(bits & 255) - int((bits & 128) << 1); }
// N (1, 2 or 4) bytes, the first in the lowest bits; even N at even addresses.
template <int N> LI_FN uint32_t load_bytes(LI_IN(uint8_t) p) {
  return N == 1 ? load_u8(p) : N == 2 ? load_u16(p) : load_u32_by2(p);
}
