/* Kernels of the types with blocks of 32 values. */
#include "linear_avx2_kernels.h"

#if LI_X86

LI_AVX2_KERNELS(q4_0, LI_Q4_0, 0)
LI_AVX2_KERNELS(q4_1, LI_Q4_1, 1)
LI_AVX2_KERNELS(q5_0, LI_Q5_0, 0)
LI_AVX2_KERNELS(q5_1, LI_Q5_1, 1)

#endif
