/* attention_avx2.c for AVX-512. */
#define LI_FOR_AVX512 1
#include "attention_avx2.c"
