/* linear_avx2.c for AVX-512. */
#define LI_FOR_AVX512 1
#include "linear_avx2.c"
