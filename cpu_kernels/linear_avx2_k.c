/* Kernels of the types with blocks of 256 values and scales of 32. */
#include "linear_avx2_kernels.h"

#if LI_X86

LI_AVX2_KERNELS(q4_k, LI_Q4_K, 1)
LI_AVX2_KERNELS(q5_k, LI_Q5_K, 1)
LI_AVX2_KERNELS(iq4_xs, LI_IQ4_XS, 0)

#endif
