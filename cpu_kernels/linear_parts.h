/* What the files of linear*.c share: the layout of prepared activations, the order of the last sum, and who does what.
 *
 * Prepared activations of one token, int types; n8 is the number of blocks of 32, rounded up to a multiple of 8:
 *     int16 p[32 * n8], float dx[n8], sum[n8], low[n8], high[n8]
 * where sum = dx * (sum of p), low and high the same for values 0..15 and 16..31. Fields of the blocks that fill up are 0.
 * Float types: float x[n], n = n_in rounded up to a multiple of 16, filled up with 0.
 */
#ifndef LI_LINEAR_PARTS_H
#define LI_LINEAR_PARTS_H

#include "blocks.h"
#include "cpu.h"
#include "linear.h"

/* Sums must not become fused multiply-adds by the compiler's choice: they are spelled out where they are meant. GCC
 * leaves them alone with -std=c11 (not gnu11) or -ffp-contract=off; clang by this. */
#if defined(__clang__)
#pragma clang fp contract(off)
#endif

#define LI_ACTIVATION_MAX 16383.0f

static inline int64_t li_round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* Blocks of 32 of a row, rounded up to whole groups of 8. */
static inline int64_t li_padded_blocks(int64_t n_in) { return li_round_up(n_in, 256) / 32; }

/* Bytes of one token's prepared activations; a multiple of 64. */
static inline int64_t li_token_bytes(int kind, int64_t n_in)
{
    return kind == LI_KIND_INT ? li_padded_blocks(n_in) * 80 : li_round_up(n_in, 16) * 4;
}

typedef struct {
    const int16_t *p;
    const float *dx, *sum, *low, *high;
} li_int_row;

static inline li_int_row li_int_row_at(const void *xq, int64_t n_in)
{
    int64_t n8 = li_padded_blocks(n_in);
    const float *scales = (const float *)((const char *)xq + 64 * n8);
    return (li_int_row){(const int16_t *)xq, scales, scales + n8, scales + 2 * n8, scales + 3 * n8};
}

/* One token's row of x, blocks [b0, b1) of 32 values: what li_prepare_blocks does. */
void li_prepare_int_scalar(const float *x, int64_t n_in, int64_t b0, int64_t b1, void *xq);
void li_linear_scalar(const li_matrix *w, const void *xq, int64_t n_tokens, float *y, int64_t ldy, int64_t row0,
                      int64_t row1, void *scratch);
int64_t li_scratch_scalar(const li_type_info *t, int64_t n_in);

#if LI_X86
void li_prepare_int_avx2(const float *x, int64_t n_in, int64_t b0, int64_t b1, void *xq);
void li_linear_avx2(const li_matrix *w, const void *xq, int64_t n_tokens, float *y, int64_t ldy, int64_t row0,
                    int64_t row1, void *scratch);
int64_t li_scratch_avx2(const li_type_info *t, int64_t n_in, int64_t n_tokens);
#endif

#endif
