/* Kernels of all other types, whose blocks plain C decodes, and of matrices of less than four rows. */
#include "linear_avx2_kernels.h"

#if LI_X86

LI_AVX2_KERNELS(decoded, LI_DECODED, -1)
LI_AVX2_KERNELS(decoded_nibbles, LI_DECODED_NIBBLES, -1)

#endif
