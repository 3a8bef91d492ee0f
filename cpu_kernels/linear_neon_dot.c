/* linear.h for 64-bit ARM with the dot product of bytes (FEAT_DotProd: ARMv8.4, most of ARMv8.2, every Apple silicon). */
#include "linear_neon.h"

#if LI_NEON_DOT

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#else
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif

#define LI_DOT 1
#include "linear_neon_rows.h"

void li_linear_blocks_neon_dot(const li_matrix *w, const char *xq, int64_t n_tokens, float *y, int64_t ldy,
                               int64_t row0, int64_t row1)
{
    linear_blocks(w, xq, n_tokens, y, ldy, row0, row1);
}

#if defined(__clang__)
#pragma clang attribute pop
#endif

#endif
