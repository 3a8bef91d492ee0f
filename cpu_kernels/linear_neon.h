/* What the files of linear_neon*.c share. */
#ifndef LI_LINEAR_NEON_H
#define LI_LINEAR_NEON_H

#include "linear_parts.h"

/* Clang before 16 has the intrinsics only where the whole build asks for them. */
#if LI_ARM64 && defined(__clang__) && !defined(__ARM_FEATURE_DOTPROD)
#define LI_NEON_DOT (__clang_major__ >= 16)
#else
#define LI_NEON_DOT LI_ARM64
#endif

#if LI_ARM64

/* Rows [row0, row1) of a block type for n_tokens. */
void li_linear_blocks_neon_dot(const li_matrix *w, const char *xq, int64_t n_tokens, float *y, int64_t ldy,
                               int64_t row0, int64_t row1);

#endif
#endif
