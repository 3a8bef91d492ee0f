/* The table of types, and plain C decoders of all but the codebook and ternary types (blocks_iq.inc). */
#include "blocks.h"
#include "blocks_iq.h"

const int8_t li_iq4_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
const int8_t li_fp4_levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* -- float types ----------------------------------------------------------------------------------------------------*/

static void floats_f32(const uint8_t *src, int64_t n, float *out) { memcpy(out, src, (size_t)n * sizeof *out); }

static void floats_f16(const uint8_t *src, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = li_load_half(src + 2 * i);
}

static void floats_bf16(const uint8_t *src, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = li_float_of_bits((uint32_t)li_load_u16(src + 2 * i) << 16);
}

/* Half the value of an unsigned E4M3 code; bit 7 is ignored, the code for NaN counts as 0. */
static float half_e4m3(uint8_t code)
{
    unsigned exponent = code >> 3 & 15, mantissa = code & 7;
    if ((code & 127) == 127)
        return 0.0f;
    if (exponent == 0)
        return (float)mantissa * 0x1p-10f;
    return li_float_of_bits((exponent + 119) << 23 | mantissa << 20);
}

static void floats_nvfp4(const uint8_t *src, int64_t n, float *out)
{
    for (; n > 0; n -= 64, src += 36, out += 64)
        for (int s = 0; s < 4; s++) {
            float d = half_e4m3(src[s]);
            for (int j = 0; j < 8; j++) {
                uint8_t pair = src[4 + 8 * s + j];
                out[16 * s + j] = d * (float)li_fp4_levels[pair & 15];
                out[16 * s + 8 + j] = d * (float)li_fp4_levels[pair >> 4];
            }
        }
}

/* -- 32 values with one scale ---------------------------------------------------------------------------------------*/

/* 16 bytes of nibbles, the first 16 values in the low ones, minus `offset`. */
static void nibbles(const uint8_t *qs, int offset, int16_t *q)
{
    for (int j = 0; j < 16; j++) {
        q[j] = (int16_t)((qs[j] & 15) - offset);
        q[j + 16] = (int16_t)((qs[j] >> 4) - offset);
    }
}

static void levels(const uint8_t *qs, const int8_t *table, int16_t *q)
{
    for (int j = 0; j < 16; j++) {
        q[j] = table[qs[j] & 15];
        q[j + 16] = table[qs[j] >> 4];
    }
}

static void five_bits(const uint8_t *high, const uint8_t *qs, int offset, int16_t *q)
{
    uint32_t bits = li_load_u32(high);
    nibbles(qs, offset, q);
    for (int j = 0; j < 32; j++)
        q[j] = (int16_t)(q[j] + (bits >> j & 1) * 16);
}

static void group_q4_0(const uint8_t *src, int n, li_group *g)
{
    for (int b = 0; b < n; b++, src += 18) {
        g->d[b] = li_load_half(src);
        nibbles(src + 2, 8, g->q + 32 * b);
    }
}

static void group_q4_1(const uint8_t *src, int n, li_group *g)
{
    for (int b = 0; b < n; b++, src += 20) {
        g->d[b] = li_load_half(src);
        g->m[b] = li_load_half(src + 2);
        nibbles(src + 4, 0, g->q + 32 * b);
    }
}

static void group_q5_0(const uint8_t *src, int n, li_group *g)
{
    for (int b = 0; b < n; b++, src += 22) {
        g->d[b] = li_load_half(src);
        five_bits(src + 2, src + 6, 16, g->q + 32 * b);
    }
}

static void group_q5_1(const uint8_t *src, int n, li_group *g)
{
    for (int b = 0; b < n; b++, src += 24) {
        g->d[b] = li_load_half(src);
        g->m[b] = li_load_half(src + 2);
        five_bits(src + 4, src + 8, 0, g->q + 32 * b);
    }
}

static void bytes_to_q(const uint8_t *src, int n, int16_t *q)
{
    for (int j = 0; j < n; j++)
        q[j] = (int8_t)src[j];
}

static void group_q8_0(const uint8_t *src, int n, li_group *g)
{
    for (int b = 0; b < n; b++, src += 34) {
        g->d[b] = li_load_half(src);
        bytes_to_q(src + 2, 32, g->q + 32 * b);
    }
}

static void group_q8_1(const uint8_t *src, int n, li_group *g)
{
    for (int b = 0; b < n; b++, src += 36) {
        g->d[b] = li_load_half(src);
        bytes_to_q(src + 4, 32, g->q + 32 * b);
    }
}

static void group_iq4_nl(const uint8_t *src, int n, li_group *g)
{
    for (int b = 0; b < n; b++, src += 18) {
        g->d[b] = li_load_half(src);
        levels(src + 2, li_iq4_levels, g->q + 32 * b);
    }
}

static void group_mxfp4(const uint8_t *src, int n, li_group *g)
{
    for (int b = 0; b < n; b++, src += 17) {
        g->d[b] = li_half_e8m0(src[0]);
        levels(src + 1, li_fp4_levels, g->q + 32 * b);
    }
}

/* -- 256 values, sub-blocks of 16 or 32 with small integer scales ----------------------------------------------------*/

static void fill(float *d, float value)
{
    for (int b = 0; b < 8; b++)
        d[b] = value;
}

/* 256 small integers stored in planes: each run of `run` bytes holds its lowest `bits` bits first (run values), then the
 * next higher, and so on. Their places are set to the value times `factor`, or it is added. */
static inline void planes(const uint8_t *src, int n_bytes, int run, int bits, int factor, int add, int16_t *q)
{
    for (int start = 0; start < n_bytes; start += run)
        for (int shift = 0; shift < 8; shift += bits, q += run)
            for (int j = 0; j < run; j++) {
                int value = (src[start + j] >> shift & ((1 << bits) - 1)) * factor;
                q[j] = (int16_t)(add ? q[j] + value : value);
            }
}

static void shift_all(int16_t *q, int by)
{
    for (int i = 0; i < 256; i++)
        q[i] = (int16_t)(q[i] + by);
}

/* A scale for each 16 values. */
static void scale_all(int16_t *q, const int16_t scales[16])
{
    for (int s = 0; s < 16; s++)
        for (int j = 0; j < 16; j++)
            q[16 * s + j] = (int16_t)(q[16 * s + j] * scales[s]);
}

static void group_q2_k(const uint8_t *src, int n, li_group *g)
{
    int16_t scales[16];
    (void)n;
    fill(g->d, li_load_half(src + 80));
    fill(g->m, -li_load_half(src + 82));
    for (int s = 0; s < 16; s++) {
        scales[s] = src[s] & 15;
        g->mins[s] = src[s] >> 4;
    }
    planes(src + 16, 64, 32, 2, 1, 0, g->q);
    scale_all(g->q, scales);
}

static void group_q3_k(const uint8_t *src, int n, li_group *g)
{
    uint32_t words[4];
    uint8_t bytes[16];
    int16_t scales[16];
    (void)n;
    fill(g->d, li_load_half(src + 108));
    li_unpack_q3_k_scales(src + 96, words);
    memcpy(bytes, words, sizeof bytes);
    for (int s = 0; s < 16; s++)
        scales[s] = (int16_t)(bytes[s] - 32);
    planes(src + 32, 64, 32, 2, 1, 0, g->q);
    planes(src, 32, 32, 1, 4, 1, g->q);
    shift_all(g->q, -4);
    scale_all(g->q, scales);
}

/* d and m of the 8 blocks of Q4_K and Q5_K. */
static void k_scales(const uint8_t *src, li_group *g)
{
    float d = li_load_half(src), dmin = li_load_half(src + 2);
    uint32_t scale_words[2], min_words[2];
    uint8_t scales[8], mins[8];
    li_unpack_k_scales(src + 4, scale_words, min_words);
    memcpy(scales, scale_words, sizeof scales);
    memcpy(mins, min_words, sizeof mins);
    for (int b = 0; b < 8; b++) {
        g->d[b] = d * (float)scales[b];
        g->m[b] = -(dmin * (float)mins[b]);
    }
}

static void group_q4_k(const uint8_t *src, int n, li_group *g)
{
    (void)n;
    k_scales(src, g);
    planes(src + 16, 128, 32, 4, 1, 0, g->q);
}

static void group_q5_k(const uint8_t *src, int n, li_group *g)
{
    (void)n;
    k_scales(src, g);
    planes(src + 48, 128, 32, 4, 1, 0, g->q);
    planes(src + 16, 32, 32, 1, 16, 1, g->q);
}

static void group_q6_k(const uint8_t *src, int n, li_group *g)
{
    int16_t scales[16];
    (void)n;
    fill(g->d, li_load_half(src + 208));
    for (int s = 0; s < 16; s++)
        scales[s] = (int8_t)src[192 + s];
    planes(src, 128, 64, 4, 1, 0, g->q);
    planes(src + 128, 64, 32, 2, 16, 1, g->q);
    shift_all(g->q, -32);
    scale_all(g->q, scales);
}

static void group_q8_k(const uint8_t *src, int n, li_group *g)
{
    (void)n;
    fill(g->d, li_float_of_bits(li_load_u32(src)));
    bytes_to_q(src + 4, 256, g->q);
}

static void group_iq4_xs(const uint8_t *src, int n, li_group *g)
{
    float d = li_load_half(src);
    (void)n;
    for (int b = 0; b < 8; b++) {
        g->d[b] = d * (float)li_iq4_xs_scale(src, b);
        levels(src + 8 + 16 * b, li_iq4_levels, g->q + 32 * b);
    }
}

/* -- the table ------------------------------------------------------------------------------------------------------*/

#define INT(values, bytes, mins, decode) {values, bytes, LI_KIND_INT, mins, decode, 0}
#define GROUPS(values, bytes, mins, decode) {values, bytes, LI_KIND_GROUP, mins, decode, 0}
#define NIBBLES(values, bytes, mins, decode) {values, bytes, LI_KIND_NIBBLE, mins, decode, 0}
#define FLOAT(values, bytes, decode) {values, bytes, LI_KIND_FLOAT, 0, 0, decode}

const li_type_info li_types[LI_N_TYPES] = {
    [LI_F32] = FLOAT(1, 4, floats_f32),
    [LI_F16] = FLOAT(1, 2, floats_f16),
    [LI_BF16] = FLOAT(1, 2, floats_bf16),
    [LI_NVFP4] = FLOAT(64, 36, floats_nvfp4),
    [LI_Q4_0] = NIBBLES(32, 18, 0, group_q4_0),
    [LI_Q4_1] = NIBBLES(32, 20, 1, group_q4_1),
    [LI_Q5_0] = INT(32, 22, 0, group_q5_0),
    [LI_Q5_1] = INT(32, 24, 1, group_q5_1),
    [LI_Q8_0] = INT(32, 34, 0, group_q8_0),
    [LI_Q8_1] = INT(32, 36, 0, group_q8_1),
    [LI_Q2_K] = GROUPS(256, 84, 2, group_q2_k),
    [LI_Q3_K] = GROUPS(256, 110, 0, group_q3_k),
    [LI_Q4_K] = INT(256, 144, 1, group_q4_k),
    [LI_Q5_K] = INT(256, 176, 1, group_q5_k),
    [LI_Q6_K] = INT(256, 210, 0, group_q6_k),
    [LI_Q8_K] = INT(256, 292, 0, group_q8_k),
    [LI_IQ1_S] = INT(256, 50, 0, li_group_iq1_s),
    [LI_IQ1_M] = INT(256, 56, 0, li_group_iq1_m),
    [LI_IQ2_XXS] = INT(256, 66, 0, li_group_iq2_xxs),
    [LI_IQ2_XS] = INT(256, 74, 0, li_group_iq2_xs),
    [LI_IQ2_S] = INT(256, 82, 0, li_group_iq2_s),
    [LI_IQ3_XXS] = INT(256, 98, 0, li_group_iq3_xxs),
    [LI_IQ3_S] = INT(256, 110, 0, li_group_iq3_s),
    [LI_IQ4_NL] = INT(32, 18, 0, group_iq4_nl),
    [LI_IQ4_XS] = INT(256, 136, 0, group_iq4_xs),
    [LI_TQ1_0] = INT(256, 54, 0, li_group_tq1_0),
    [LI_TQ2_0] = INT(256, 66, 0, li_group_tq2_0),
    [LI_MXFP4] = INT(32, 17, 0, group_mxfp4),
};

const li_type_info *li_type(int type)
{
    static const li_type_info none = {0, 0, 0, 0, 0, 0};
    return type >= 0 && type < LI_N_TYPES ? &li_types[type] : &none;
}
