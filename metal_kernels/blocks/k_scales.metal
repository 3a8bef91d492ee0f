// The 6-bit scales and mins of Q4_K's and Q5_K's eight sub-blocks: 12 bytes, here as three words a, b, c.
// Of byte s of each: a has scale s in its low 6 bits, b min s; c has the low 4 bits of scale s + 4 and above them of
// min s + 4, whose upper 2 bits are on top of a and b.
LI_FN float k_scale(LI_THREAD const uint32_t* w, int sub) {
  int at = 8 * (sub & 3);
  return float(sub < 4 ? (w[0] >> at) & 63 : ((w[2] >> at) & 15) | (((w[0] >> (at + 6)) & 3) << 4));
}
LI_FN float k_min(LI_THREAD const uint32_t* w, int sub) {
  int at = 8 * (sub & 3);
  return float(sub < 4 ? (w[1] >> at) & 63 : ((w[2] >> (at + 4)) & 15) | (((w[1] >> (at + 6)) & 3) << 4));
}
