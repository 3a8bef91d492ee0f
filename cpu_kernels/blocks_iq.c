/* Types whose values are points of a grid: groups of 8 (or 4) values are one index, signs are stored apart.
 * Scales that belong to 16 values are odd numbers (2 s + 1) times d / 8 and the like: the odd number goes into q. */
#include "blocks_iq.h"

#include "codebooks.h"

/* The grids unpacked, a byte a value, and the signs that belong to a byte of sign bits; made when the library loads. */
static int8_t iq1[2048][8], iq2_xxs[256][8], iq2_xs[512][8], iq2_s[1024][8], iq3_xxs[256][4], iq3_s[512][4];
static int8_t signs_of[256][8];
static uint8_t even_signs[128]; /* the eighth sign makes the number of minus signs even */

static void unpack8(const uint16_t *grid, int n, const int8_t *levels, int8_t (*out)[8])
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 8; j++)
            out[i][j] = levels[grid[i] >> (2 * j) & 3];
}

static void unpack4(const uint16_t *grid, int n, const int8_t *levels, int8_t (*out)[4])
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 4; j++)
            out[i][j] = levels[grid[i] >> (3 * j) & 7];
}

__attribute__((constructor)) static void unpack_grids(void)
{
    unpack8(li_iq1_grid, 2048, li_iq1_levels, iq1);
    unpack8(li_iq2_xxs_grid, 256, li_iq2_levels, iq2_xxs);
    unpack8(li_iq2_xs_grid, 512, li_iq2_levels, iq2_xs);
    unpack8(li_iq2_s_grid, 1024, li_iq2_levels, iq2_s);
    unpack4(li_iq3_xxs_grid, 256, li_iq3_xxs_levels, iq3_xxs);
    unpack4(li_iq3_s_grid, 512, li_iq3_s_levels, iq3_s);
    for (int bits = 0; bits < 256; bits++) {
        int parity = 0;
        for (int j = 0; j < 8; j++) {
            signs_of[bits][j] = bits >> j & 1 ? -1 : 1;
            parity ^= bits >> j & 1;
        }
        if (bits < 128)
            even_signs[bits] = (uint8_t)(bits | parity << 7);
    }
}

/* 8 values of a grid point, with signs, times scale. */
static inline void eight(int16_t *restrict q, const int8_t *restrict point, const int8_t *restrict sign, int scale)
{
    for (int j = 0; j < 8; j++)
        q[j] = (int16_t)((int16_t)(point[j] * sign[j]) * (int16_t)scale);
}

/* The same from two points of 4 values. */
static inline void two_fours(int16_t *restrict q, const int8_t *a, const int8_t *b, const int8_t *restrict sign)
{
    int8_t point[8];
    memcpy(point, a, 4);
    memcpy(point + 4, b, 4);
    eight(q, point, sign, 1);
}

static void fill(float *d, float value)
{
    for (int b = 0; b < 8; b++)
        d[b] = value;
}

static int nibble(const uint8_t *p, int i) { return p[i / 2] >> (4 * (i & 1)) & 15; }

void li_group_iq2_xxs(const uint8_t *src, int n, li_group *g)
{
    float d = li_load_half(src) * 0.125f;
    (void)n;
    for (int b = 0; b < 8; b++) {
        const uint8_t *index = src + 2 + 8 * b;
        uint32_t word = li_load_u32(index + 4);
        g->d[b] = d * (float)(2 * (word >> 28) + 1);
        for (int k = 0; k < 4; k++)
            eight(g->q + 32 * b + 8 * k, iq2_xxs[index[k]], signs_of[even_signs[word >> (7 * k) & 127]], 1);
    }
}

void li_group_iq2_xs(const uint8_t *src, int n, li_group *g)
{
    (void)n;
    fill(g->d, li_load_half(src) * 0.125f);
    for (int k = 0; k < 32; k++) {
        unsigned code = li_load_u16(src + 2 + 2 * k);
        eight(g->q + 8 * k, iq2_xs[code & 511], signs_of[even_signs[code >> 9]], 2 * nibble(src + 66, k / 2) + 1);
    }
}

void li_group_iq2_s(const uint8_t *src, int n, li_group *g)
{
    (void)n;
    fill(g->d, li_load_half(src) * 0.125f);
    for (int k = 0; k < 32; k++) {
        unsigned high = src[66 + k / 4] >> (2 * (k & 3)) & 3;
        eight(g->q + 8 * k, iq2_s[src[2 + k] | high << 8], signs_of[src[34 + k]], 2 * nibble(src + 74, k / 2) + 1);
    }
}

void li_group_iq3_xxs(const uint8_t *src, int n, li_group *g)
{
    float d = li_load_half(src) * 0.25f;
    (void)n;
    for (int b = 0; b < 8; b++) {
        uint32_t word = li_load_u32(src + 66 + 4 * b);
        g->d[b] = d * (float)(2 * (word >> 28) + 1);
        for (int k = 0; k < 4; k++) {
            const uint8_t *index = src + 2 + 8 * b + 2 * k;
            two_fours(g->q + 32 * b + 8 * k, iq3_xxs[index[0]], iq3_xxs[index[1]],
                      signs_of[even_signs[word >> (7 * k) & 127]]);
        }
    }
}

void li_group_iq3_s(const uint8_t *src, int n, li_group *g)
{
    float d = li_load_half(src);
    (void)n;
    for (int b = 0; b < 8; b++)
        g->d[b] = d * (float)(2 * nibble(src + 106, b) + 1);
    for (int k = 0; k < 32; k++) {
        unsigned ninth = src[66 + k / 4] >> (2 * (k & 3));
        const uint8_t *index = src + 2 + 2 * k;
        two_fours(g->q + 8 * k, iq3_s[index[0] | (ninth & 1) << 8], iq3_s[index[1] | (ninth & 2) << 7],
                  signs_of[src[74 + k]]);
    }
}

/* 8 ternary values and a shift of 1/8 up or down, times 8 times scale. */
static inline void eight_shifted(int16_t *restrict q, const int8_t *restrict point, int down, int scale)
{
    int16_t shift = down ? -1 : 1;
    for (int j = 0; j < 8; j++)
        q[j] = (int16_t)((int16_t)(8 * point[j] + shift) * (int16_t)scale);
}

void li_group_iq1_s(const uint8_t *src, int n, li_group *g)
{
    float d = li_load_half(src) * 0.125f;
    (void)n;
    for (int b = 0; b < 8; b++) {
        unsigned word = li_load_u16(src + 34 + 2 * b);
        g->d[b] = d * (float)(2 * (word >> 12 & 7) + 1);
        for (int k = 0; k < 4; k++)
            eight_shifted(g->q + 32 * b + 8 * k, iq1[src[2 + 4 * b + k] | (word >> (3 * k) & 7) << 8],
                          (word & 0x8000) != 0, 1);
    }
}

void li_group_iq1_m(const uint8_t *src, int n, li_group *g)
{
    uint16_t words[4];
    unsigned d = 0;
    (void)n;
    for (int k = 0; k < 4; k++) {
        words[k] = li_load_u16(src + 48 + 2 * k);
        d |= (unsigned)(words[k] >> 12) << (4 * k);
    }
    fill(g->d, li_float_of_half((uint16_t)d) * 0.125f);
    for (int k = 0; k < 32; k++) {
        int high = nibble(src + 32, k), s = k / 2;
        int scale = words[s / 4] >> (3 * (s & 3)) & 7;
        eight_shifted(g->q + 8 * k, iq1[src[k] | (high & 7) << 8], high & 8, 2 * scale + 1);
    }
}
