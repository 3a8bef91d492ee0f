/* Grids of the codebook types, and plain C decoders. */
#include "blocks_iq.h"

#include "codebooks.h"

/* The grids unpacked, a byte a value, and the signs that belong to a byte of sign bits; made when the library loads. */
int8_t li_iq1[2048][8], li_iq2_xxs[256][8], li_iq2_xs[512][8], li_iq2_s[1024][8], li_iq3_xxs[256][4], li_iq3_s[512][4];
int8_t li_signs_of[256][8];
uint8_t li_even_signs[128]; /* the eighth sign makes the number of minus signs even */

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
    unpack8(li_iq1_grid, 2048, li_iq1_levels, li_iq1);
    unpack8(li_iq2_xxs_grid, 256, li_iq2_levels, li_iq2_xxs);
    unpack8(li_iq2_xs_grid, 512, li_iq2_levels, li_iq2_xs);
    unpack8(li_iq2_s_grid, 1024, li_iq2_levels, li_iq2_s);
    unpack4(li_iq3_xxs_grid, 256, li_iq3_xxs_levels, li_iq3_xxs);
    unpack4(li_iq3_s_grid, 512, li_iq3_s_levels, li_iq3_s);
    for (int bits = 0; bits < 256; bits++) {
        int parity = 0;
        for (int j = 0; j < 8; j++) {
            li_signs_of[bits][j] = bits >> j & 1 ? -1 : 1;
            parity ^= bits >> j & 1;
        }
        if (bits < 128)
            li_even_signs[bits] = (uint8_t)(bits | parity << 7);
    }
}

/* 8 values of a grid point, with signs, times scale. */
static inline void eight(int16_t *restrict q, const int8_t *restrict point, const int8_t *restrict sign, int scale)
{
    for (int j = 0; j < 8; j++)
        q[j] = (int16_t)((int16_t)(point[j] * sign[j]) * (int16_t)scale);
}

/* 8 ternary values and a shift of 1/8 up or down, times 8 times scale. */
static inline void eight_shifted(int16_t *restrict q, const int8_t *restrict point, int down, int scale)
{
    int16_t shift = down ? -1 : 1;
    for (int j = 0; j < 8; j++)
        q[j] = (int16_t)((int16_t)(8 * point[j] + shift) * (int16_t)scale);
}

#define LI_GROUP(name) li_group_##name
#include "blocks_iq.inc"
