/* Types whose values are points of a grid: groups of 8 (or 4) values are one index, signs are stored apart.
 * Scales that belong to 16 values are odd numbers (2 s + 1) times d / 8 and the like: the odd number goes into q. */
#include "blocks_iq.h"

#include "codebooks.h"

/* The eighth sign makes the number of minus signs even. */
static unsigned even_signs(unsigned seven)
{
    unsigned parity = seven ^ seven >> 4;
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return seven | (parity & 1) << 7;
}

/* 8 values: 2 bits each in `point` choose among `levels`; minus where the sign bit is set; times scale. */
static void eight(int16_t *q, unsigned point, const int8_t levels[4], unsigned signs, int scale)
{
    for (int j = 0; j < 8; j++) {
        int value = levels[point >> (2 * j) & 3] * scale;
        q[j] = (int16_t)(signs >> j & 1 ? -value : value);
    }
}

/* 4 values, 3 bits each. */
static void four(int16_t *q, unsigned point, const int8_t levels[8], unsigned signs, int scale)
{
    for (int j = 0; j < 4; j++) {
        int value = levels[point >> (3 * j) & 7] * scale;
        q[j] = (int16_t)(signs >> j & 1 ? -value : value);
    }
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
            eight(g->q + 32 * b + 8 * k, li_iq2_xxs_grid[index[k]], li_iq2_levels, even_signs(word >> (7 * k) & 127), 1);
    }
}

void li_group_iq2_xs(const uint8_t *src, int n, li_group *g)
{
    (void)n;
    fill(g->d, li_load_half(src) * 0.125f);
    for (int k = 0; k < 32; k++) {
        unsigned code = li_load_u16(src + 2 + 2 * k);
        eight(g->q + 8 * k, li_iq2_xs_grid[code & 511], li_iq2_levels, even_signs(code >> 9),
              2 * nibble(src + 66, k / 2) + 1);
    }
}

void li_group_iq2_s(const uint8_t *src, int n, li_group *g)
{
    (void)n;
    fill(g->d, li_load_half(src) * 0.125f);
    for (int k = 0; k < 32; k++) {
        unsigned high = src[66 + k / 4] >> (2 * (k & 3)) & 3;
        eight(g->q + 8 * k, li_iq2_s_grid[src[2 + k] | high << 8], li_iq2_levels, src[34 + k],
              2 * nibble(src + 74, k / 2) + 1);
    }
}

void li_group_iq3_xxs(const uint8_t *src, int n, li_group *g)
{
    float d = li_load_half(src) * 0.25f;
    (void)n;
    for (int b = 0; b < 8; b++) {
        uint32_t word = li_load_u32(src + 66 + 4 * b);
        g->d[b] = d * (float)(2 * (word >> 28) + 1);
        for (int k = 0; k < 8; k++) {
            unsigned signs = even_signs(word >> (7 * (k / 2)) & 127) >> (4 * (k & 1));
            four(g->q + 32 * b + 4 * k, li_iq3_xxs_grid[src[2 + 8 * b + k]], li_iq3_xxs_levels, signs, 1);
        }
    }
}

void li_group_iq3_s(const uint8_t *src, int n, li_group *g)
{
    float d = li_load_half(src);
    (void)n;
    for (int b = 0; b < 8; b++)
        g->d[b] = d * (float)(2 * nibble(src + 106, b) + 1);
    for (int k = 0; k < 64; k++) {
        unsigned ninth = src[66 + k / 8] >> (k & 7) & 1, signs = src[74 + k / 2] >> (4 * (k & 1));
        four(g->q + 4 * k, li_iq3_s_grid[src[2 + k] | ninth << 8], li_iq3_s_levels, signs, 1);
    }
}

/* 8 ternary values and a shift of 1/8 up or down, times 8 times scale. */
static void eight_shifted(int16_t *q, unsigned point, int down, int scale)
{
    for (int j = 0; j < 8; j++)
        q[j] = (int16_t)((8 * li_iq1_levels[point >> (2 * j) & 3] + (down ? -1 : 1)) * scale);
}

void li_group_iq1_s(const uint8_t *src, int n, li_group *g)
{
    float d = li_load_half(src) * 0.125f;
    (void)n;
    for (int b = 0; b < 8; b++) {
        unsigned word = li_load_u16(src + 34 + 2 * b);
        g->d[b] = d * (float)(2 * (word >> 12 & 7) + 1);
        for (int k = 0; k < 4; k++)
            eight_shifted(g->q + 32 * b + 8 * k, li_iq1_grid[src[2 + 4 * b + k] | (word >> (3 * k) & 7) << 8],
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
        eight_shifted(g->q + 8 * k, li_iq1_grid[src[k] | (high & 7) << 8], high & 8, 2 * scale + 1);
    }
}
