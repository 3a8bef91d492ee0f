/* linear_avx2_blocks.c for AVX-512. */
#define LI_FOR_AVX512 1
#include "linear_avx2_blocks.c"
