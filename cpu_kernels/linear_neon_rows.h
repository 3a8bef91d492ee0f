/* The matrix kernels for 64-bit ARM, as a template: linear_neon.c makes them of what every such processor has (LI_DOT 0),
 * linear_neon_dot.c with the dot product of bytes (LI_DOT 1). Both follow the order of sums of linear.h.
 *
 * Activations: a block of 32 values of p is 64 bytes, first p's upper bytes, then its lower ones, signed, p = 256 upper +
 * lower, in their own order; |p| <= 16383, so |upper| <= 64. Two products of bytes then make one of 16 bits, and a
 * vector instruction does 16 of them. Scales and sums lie as linear_parts.h says.
 * Four rows at a time: the sums of a block of four rows become one vector whose lanes are the rows. Types whose values do
 * not fit a byte, and those without a decoder here, go through plain C's decode_group and products of 16 bits.
 */
#ifndef LI_LINEAR_NEON_ROWS_H
#define LI_LINEAR_NEON_ROWS_H

#include <arm_neon.h>

#include "linear_parts.h"

#define LI_INLINE static inline __attribute__((always_inline))

enum { ROWS = 4, MOST_TOKENS = 16, DECODED = -1 };

LI_INLINE int32x4_t dot(int32x4_t sum, int8x16_t a, int8x16_t b)
{
#if LI_DOT
    return vdotq_s32(sum, a, b);
#else
    sum = vpadalq_s16(sum, vmull_s8(vget_low_s8(a), vget_low_s8(b)));
    return vpadalq_s16(sum, vmull_high_s8(a, b));
#endif
}

/* -- blocks: 16 bytes of values, half 0 or 1 of block b of a group ----------------------------------------------------*/

LI_INLINE uint8x16_t down(uint8x16_t v, int bits) { return vshlq_u8(v, vdupq_n_s8((int8_t)-bits)); }
LI_INLINE uint8x16_t masked(uint8x16_t v, int mask) { return vandq_u8(v, vdupq_n_u8((uint8_t)mask)); }
LI_INLINE int8x16_t minus(uint8x16_t v, int offset)
{
    return vsubq_s8(vreinterpretq_s8_u8(v), vdupq_n_s8((int8_t)offset));
}
LI_INLINE uint8x16_t nibbles(const uint8_t *p, int high) { return masked(down(vld1q_u8(p), 4 * high), 15); }
LI_INLINE int8x16_t levels(const int8_t *table, uint8x16_t index) { return vqtbl1q_s8(vld1q_s8(table), index); }

/* Fifth bits (as 16) of values 16 * half .. from the 4 bytes at p. */
LI_INLINE uint8x16_t fifth_bits(const uint8_t *p, int half)
{
    static const uint8_t bit[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    uint8x16_t bytes = vcombine_u8(vdup_n_u8(p[2 * half]), vdup_n_u8(p[2 * half + 1]));
    return masked(vtstq_u8(bytes, vld1q_u8(bit)), 16);
}

LI_INLINE int8x16_t half_block(int type, const uint8_t *g, int b, int half)
{
    switch (type) {
    case LI_Q4_0: return minus(nibbles(g + 18 * b + 2, half), 8);
    case LI_Q4_1: return minus(nibbles(g + 20 * b + 4, half), 0);
    case LI_Q5_0: return minus(vorrq_u8(nibbles(g + 22 * b + 6, half), fifth_bits(g + 22 * b + 2, half)), 16);
    case LI_Q5_1: return minus(vorrq_u8(nibbles(g + 24 * b + 8, half), fifth_bits(g + 24 * b + 4, half)), 0);
    case LI_Q8_0: return vreinterpretq_s8_u8(vld1q_u8(g + 34 * b + 2 + 16 * half));
    case LI_IQ4_NL: return levels(li_iq4_levels, nibbles(g + 18 * b + 2, half));
    case LI_MXFP4: return levels(li_fp4_levels, nibbles(g + 17 * b + 1, half));
    case LI_IQ4_XS: return levels(li_iq4_levels, nibbles(g + 8 + 16 * b, half));
    case LI_Q4_K: return minus(nibbles(g + 16 + 32 * (b / 2) + 16 * half, b % 2), 0);
    case LI_Q5_K: {
        uint8x16_t fifth = masked(down(vld1q_u8(g + 16 + 16 * half), b), 1);
        return minus(vorrq_u8(nibbles(g + 48 + 32 * (b / 2) + 16 * half, b % 2), vshlq_n_u8(fifth, 4)), 0);
    }
    case LI_Q6_K: {
        uint8x16_t high = masked(down(vld1q_u8(g + 128 + 32 * (b / 4) + 16 * half), 2 * (b % 4)), 3);
        uint8x16_t low = nibbles(g + 64 * (b / 4) + 32 * (b % 2) + 16 * half, b / 2 % 2);
        return minus(vorrq_u8(low, vshlq_n_u8(high, 4)), 32);
    }
    case LI_Q2_K: return minus(masked(down(vld1q_u8(g + 16 + 32 * (b / 4) + 16 * half), 2 * (b % 4)), 3), 0);
    case LI_Q3_K: {
        uint8x16_t low = masked(down(vld1q_u8(g + 32 + 32 * (b / 4) + 16 * half), 2 * (b % 4)), 3);
        uint8x16_t third = masked(down(vld1q_u8(g + 16 * half), b), 1);
        return minus(vorrq_u8(low, vshlq_n_u8(third, 2)), 4);
    }
    default: return vdupq_n_s8(0);
    }
}

/* -- scales of a group of 8 blocks, a lane per row --------------------------------------------------------------------*/

typedef struct {
    float d[8][ROWS], m[8][ROWS];
    int32_t s[16][ROWS], mins[16][ROWS]; /* of 16 values */
} group_scales;

LI_INLINE int has_scales16(int type) { return type == LI_Q2_K || type == LI_Q3_K || type == LI_Q6_K; }
/* The group kind. */
LI_INLINE int is_whole_group(int type) { return type == LI_Q2_K || type == LI_Q3_K; }
LI_INLINE int has_256_values(int type) { return (type >= LI_Q2_K && type <= LI_Q6_K) || type == LI_IQ4_XS; }

LI_INLINE void scales16(int type, const uint8_t *g, int r, group_scales *to)
{
    uint32_t words[4];
    uint8_t bytes[16];
    float d = li_load_half(g + (type == LI_Q2_K ? 80 : type == LI_Q3_K ? 108 : 208));
    for (int b = 0; b < 8; b++)
        to->d[b][r] = d;
    if (type == LI_Q3_K) {
        li_unpack_q3_k_scales(g + 96, words);
        memcpy(bytes, words, sizeof bytes);
    }
    for (int s = 0; s < 16; s++)
        to->s[s][r] = type == LI_Q2_K ? g[s] & 15 : type == LI_Q3_K ? bytes[s] - 32 : (int8_t)g[192 + s];
    if (type != LI_Q2_K)
        return;
    to->m[0][r] = -li_load_half(g + 82);
    for (int s = 0; s < 16; s++)
        to->mins[s][r] = g[s] >> 4;
}

LI_INLINE void scales_of_256(int type, const uint8_t *g, int r, group_scales *to)
{
    if (has_scales16(type)) {
        scales16(type, g, r, to);
        return;
    }
    float d = li_load_half(g);
    if (type == LI_IQ4_XS) {
        for (int b = 0; b < 8; b++)
            to->d[b][r] = d * (float)li_iq4_xs_scale(g, b);
        return;
    }
    uint32_t words[4];
    uint8_t bytes[16];
    float dmin = li_load_half(g + 2);
    li_unpack_k_scales(g + 4, words, words + 2);
    memcpy(bytes, words, sizeof bytes);
    for (int b = 0; b < 8; b++) {
        to->d[b][r] = d * (float)bytes[b];
        to->m[b][r] = -(dmin * (float)bytes[8 + b]);
    }
}

/* Of n blocks of row r's group. */
LI_INLINE void row_scales(int type, const uint8_t *g, int n, int r, group_scales *to)
{
    if (has_256_values(type)) {
        scales_of_256(type, g, r, to);
        return;
    }
    int bytes = type == LI_Q4_0 || type == LI_IQ4_NL ? 18 : type == LI_Q4_1 ? 20 : type == LI_Q5_0 ? 22
              : type == LI_Q5_1 ? 24 : type == LI_Q8_0 ? 34 : 17;
    for (int b = 0; b < n; b++, g += bytes) {
        to->d[b][r] = type == LI_MXFP4 ? li_half_e8m0(g[0]) : li_load_half(g);
        if (type == LI_Q4_1 || type == LI_Q5_1)
            to->m[b][r] = li_load_half(g + 2);
    }
}

LI_INLINE void decoded_scales(const li_group *g, int r, group_scales *to)
{
    for (int b = 0; b < 8; b++) {
        to->d[b][r] = g->d[b];
        to->m[b][r] = g->m[b];
    }
}

/* -- a block of four rows times tokens --------------------------------------------------------------------------------*/

/* Sums of the lanes of four vectors, one a lane. */
LI_INLINE int32x4_t across(const int32x4_t v[ROWS])
{
    return vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
}

/* Sums of q p over halves first .. last - 1 of a block. */
LI_INLINE int32x4_t half_sums(int8x16_t q[ROWS][2], const int8_t *x, int first, int last)
{
    int32x4_t upper[ROWS], lower[ROWS];
    for (int r = 0; r < ROWS; r++) {
        upper[r] = lower[r] = vdupq_n_s32(0);
        for (int h = first; h < last; h++) {
            upper[r] = dot(upper[r], q[r][h], vld1q_s8(x + 16 * h));
            lower[r] = dot(lower[r], q[r][h], vld1q_s8(x + 32 + 16 * h));
        }
    }
    return vaddq_s32(vshlq_n_s32(across(upper), 8), across(lower));
}

/* The same of values that plain C has decoded. */
LI_INLINE int32x4_t wide_sums(const int16_t *const q[ROWS], const int8_t *x)
{
    int32x4_t sums[ROWS] = {vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)};
    for (int i = 0; i < 32; i += 8) {
        int16x8_t p = vaddq_s16(vshll_n_s8(vld1_s8(x + i), 8), vmovl_s8(vld1_s8(x + 32 + i)));
        for (int r = 0; r < ROWS; r++) {
            int16x8_t w = vld1q_s16(q[r] + i);
            sums[r] = vmlal_s16(sums[r], vget_low_s16(w), vget_low_s16(p));
            sums[r] = vmlal_high_s16(sums[r], w, p);
        }
    }
    return across(sums);
}

/* The sums of a block into a token's lane. */
LI_INLINE float32x4_t add_block(int n_mins, const group_scales *w, int b, int32x4_t sums, const li_int_row *x,
                                int64_t slot, float32x4_t lane)
{
    float dx = x->dx[slot];
    lane = vfmaq_f32(lane, vmulq_n_f32(vld1q_f32(w->d[b]), dx), vcvtq_f32_s32(sums));
    if (n_mins == 1)
        lane = vfmaq_n_f32(lane, vld1q_f32(w->m[b]), x->sum[slot]);
    return lane;
}

/* The group kind: sums of half `half` of the 8 blocks of a group, q[row][half] of each, into a token's lane. */
LI_INLINE float32x4_t add_group_half(int n_mins, const group_scales *w, int8x16_t q[8][ROWS][2], int64_t b0, int half,
                                     const li_int_row *x, float32x4_t lane)
{
    const float dx = x->dx[li_slot(b0)];
    const int8_t *p = (const int8_t *)(const void *)(x->p + 32 * b0);
    int32x4_t sums = vdupq_n_s32(0), mins = vdupq_n_s32(0);
    for (int b = 0; b < 8; b++) {
        sums = vmlaq_s32(sums, half_sums(q[b], p + 64 * b, half, half + 1), vld1q_s32(w->s[2 * b + half]));
        if (n_mins == 2)
            mins = vmlaq_n_s32(mins, vld1q_s32(w->mins[2 * b + half]), (half ? x->high : x->low)[li_slot(b0 + b)]);
    }
    lane = vfmaq_f32(lane, vmulq_n_f32(vld1q_f32(w->d[0]), dx), vcvtq_f32_s32(sums));
    if (n_mins == 2)
        lane = vfmaq_f32(lane, vmulq_n_f32(vld1q_f32(w->m[0]), dx), vcvtq_f32_s32(mins));
    return lane;
}

LI_INLINE void whole_group_tokens(int type, int n_mins, const uint8_t *const at[ROWS], int64_t b0, int n_tokens,
                                  const li_int_row *x, float32x4_t (*lanes)[2])
{
    group_scales w;
    int8x16_t q[8][ROWS][2];
    for (int r = 0; r < ROWS; r++)
        row_scales(type, at[r], 8, r, &w);
    for (int b = 0; b < 8; b++)
        for (int r = 0; r < ROWS; r++)
            for (int h = 0; h < 2; h++)
                q[b][r][h] = half_block(type, at[r], b, h);
    for (int t = 0; t < n_tokens; t++)
        for (int half = 0; half < 2; half++)
            lanes[t][half] = add_group_half(n_mins, &w, q, b0, half, &x[t], lanes[t][half]);
}

/* Group b0 / 8, of n blocks, of four rows, for n_tokens. */
LI_INLINE void group_tokens(int type, int n_mins, const uint8_t *const at[ROWS], const li_group *decoded, int64_t b0,
                            int n, int n_tokens, const li_int_row *x, float32x4_t (*lanes)[2])
{
    group_scales w;
    for (int r = 0; r < ROWS; r++) {
        if (type == DECODED)
            decoded_scales(&decoded[r], r, &w);
        else
            row_scales(type, at[r], n, r, &w);
    }
    for (int b = 0; b < n; b++) {
        int8x16_t q[ROWS][2];
        const int16_t *wide[ROWS];
        for (int r = 0; r < ROWS; r++) {
            wide[r] = decoded[r].q + 32 * b;
            if (type != DECODED)
                for (int h = 0; h < 2; h++)
                    q[r][h] = half_block(type, at[r], b, h);
        }
        int64_t slot = li_slot(b0 + b);
        for (int t = 0; t < n_tokens; t++) {
            const int8_t *p = (const int8_t *)(const void *)(x[t].p + 32 * (b0 + b));
            int32x4_t sums;
            if (type == DECODED)
                sums = wide_sums(wide, p);
            else if (has_scales16(type))
                sums = vmlaq_s32(vmulq_s32(half_sums(q, p, 0, 1), vld1q_s32(w.s[2 * b])), half_sums(q, p, 1, 2),
                                 vld1q_s32(w.s[2 * b + 1]));
            else
                sums = half_sums(q, p, 0, 2);
            lanes[t][b % 2] = add_block(n_mins, &w, b, sums, &x[t], slot, lanes[t][b % 2]);
        }
    }
}

/* Four rows for n_tokens <= MOST_TOKENS; y[t * ldy + row] of those rows in [row0, row1). */
LI_INLINE void four_rows(int type, int n_mins, const li_matrix *w, const int64_t row[ROWS], int n_tokens,
                         const li_int_row *x, float *y, int64_t ldy, int64_t row0, int64_t row1)
{
    const li_type_info *t = li_type(w->type);
    float32x4_t lanes[MOST_TOKENS][2];
    int64_t n_blocks = w->n_in / 32;
    for (int k = 0; k < n_tokens; k++)
        lanes[k][0] = lanes[k][1] = vdupq_n_f32(0.0f);
    for (int64_t b = 0; b < n_blocks; b += 8) {
        int n = n_blocks - b < 8 ? (int)(n_blocks - b) : 8;
        const uint8_t *at[ROWS];
        li_group decoded[ROWS];
        for (int r = 0; r < ROWS; r++) {
            at[r] = w->blocks + row[r] * w->row_bytes + b / 8 * li_group_bytes(t);
            if (type == DECODED)
                t->decode_group(at[r], n, &decoded[r]);
        }
        if (is_whole_group(type))
            whole_group_tokens(type, n_mins, at, b, n_tokens, x, lanes);
        else
            group_tokens(type, n_mins, at, decoded, b, n, n_tokens, x, lanes);
    }
    for (int k = 0; k < n_tokens; k++) {
        float sums[ROWS];
        vst1q_f32(sums, vaddq_f32(lanes[k][0], lanes[k][1]));
        for (int r = 0; r < ROWS; r++)
            if (row[r] >= row0 && row[r] < row1)
                y[k * ldy + row[r]] = sums[r];
    }
}

LI_INLINE void rows_of_type(int type, int n_mins, const li_matrix *w, const char *xq, int64_t n_tokens, float *y,
                            int64_t ldy, int64_t row0, int64_t row1)
{
    const li_row_streams streams = li_streams_of(w, row0, row1);
    int64_t stride = li_token_bytes(li_type(w->type)->kind, w->n_in), row[LI_STREAMS];
    if (n_mins < 0)
        n_mins = li_type(w->type)->n_mins;
    for (int64_t i = 0; i < streams.quarter; i++) {
        li_rows_at(&streams, i, row);
        for (int64_t t = 0; t < n_tokens; t += MOST_TOKENS) {
            li_int_row x[MOST_TOKENS];
            int n = n_tokens - t < MOST_TOKENS ? (int)(n_tokens - t) : MOST_TOKENS;
            for (int k = 0; k < n; k++)
                x[k] = li_int_row_at(xq + (t + k) * stride, w->n_in);
            if (n == 1)
                four_rows(type, n_mins, w, row, 1, x, y + t * ldy, ldy, row0, row1);
            else
                four_rows(type, n_mins, w, row, n, x, y + t * ldy, ldy, row0, row1);
        }
    }
}

static void linear_blocks(const li_matrix *w, const char *xq, int64_t n_tokens, float *y, int64_t ldy, int64_t row0,
                          int64_t row1)
{
#define LI_CASE(type, n_mins)                                                                                         \
    case type: rows_of_type(type, n_mins, w, xq, n_tokens, y, ldy, row0, row1); return;
    switch (w->type) {
        LI_CASE(LI_Q4_0, 0)
        LI_CASE(LI_Q4_1, 1)
        LI_CASE(LI_Q5_0, 0)
        LI_CASE(LI_Q5_1, 1)
        LI_CASE(LI_Q8_0, 0)
        LI_CASE(LI_IQ4_NL, 0)
        LI_CASE(LI_MXFP4, 0)
        LI_CASE(LI_IQ4_XS, 0)
        LI_CASE(LI_Q2_K, 2)
        LI_CASE(LI_Q3_K, 0)
        LI_CASE(LI_Q4_K, 1)
        LI_CASE(LI_Q5_K, 1)
        LI_CASE(LI_Q6_K, 0)
    default: rows_of_type(DECODED, -1, w, xq, n_tokens, y, ldy, row0, row1);
    }
#undef LI_CASE
}

#endif
