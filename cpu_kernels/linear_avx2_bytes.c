/* Kernels of the types with blocks of 32 values whose values are bytes or levels. */
#include "linear_avx2_kernels.h"

#if LI_X86

LI_AVX2_KERNELS(q8_0, LI_Q8_0, 0)
LI_AVX2_KERNELS(iq4_nl, LI_IQ4_NL, 0)
LI_AVX2_KERNELS(mxfp4, LI_MXFP4, 0)

#endif
