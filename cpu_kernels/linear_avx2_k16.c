/* Kernels of the types with blocks of 256 values and scales of 16. */
#include "linear_avx2_kernels.h"

#if LI_X86

LI_AVX2_GROUP_KERNELS(q2_k, LI_Q2_K, 2)
LI_AVX2_GROUP_KERNELS(q3_k, LI_Q3_K, 0)
LI_AVX2_KERNELS(q6_k, LI_Q6_K, 0)

#endif
