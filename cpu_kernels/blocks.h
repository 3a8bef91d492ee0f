/* GGUF blocks as what the matrix kernels see: groups of up to 8 blocks of 32 values, w[i] = d * q[i] + m (linear.h).
 *
 * The decoders here are plain C: the reference for the vector code, and its way of reading the types that it has no
 * decoder of its own for. Layouts: the block_* structs of ggml-common.h,
 * https://github.com/ggml-org/llama.cpp/tree/master/ggml/src; localinfer/formats/dequant.py says the same in numpy.
 */
#ifndef LI_BLOCKS_H
#define LI_BLOCKS_H

#include <stdint.h>
#include <string.h>

enum {
    LI_F32 = 0,
    LI_F16 = 1,
    LI_Q4_0 = 2,
    LI_Q4_1 = 3,
    LI_Q5_0 = 6,
    LI_Q5_1 = 7,
    LI_Q8_0 = 8,
    LI_Q8_1 = 9,
    LI_Q2_K = 10,
    LI_Q3_K = 11,
    LI_Q4_K = 12,
    LI_Q5_K = 13,
    LI_Q6_K = 14,
    LI_Q8_K = 15,
    LI_IQ2_XXS = 16,
    LI_IQ2_XS = 17,
    LI_IQ3_XXS = 18,
    LI_IQ1_S = 19,
    LI_IQ4_NL = 20,
    LI_IQ3_S = 21,
    LI_IQ2_S = 22,
    LI_IQ4_XS = 23,
    LI_IQ1_M = 29,
    LI_BF16 = 30,
    LI_TQ1_0 = 34,
    LI_TQ2_0 = 35,
    LI_MXFP4 = 39,
    LI_NVFP4 = 40,
    LI_N_TYPES = 41
};

/* 8 blocks of 32 values: value j of block b is q[32 * b + j] * d[b] + m[b]; of Q2_K, whose mins are whole numbers of 16
 * values each, + m[b] * mins[2 * b + j / 16]. */
typedef struct {
    int16_t q[256], mins[16];
    float d[8], m[8];
} li_group;

/* Activations as float32; as int16; as int16 in differences; as int16 with one scale for 256 values (linear_parts.h). */
enum { LI_KIND_FLOAT = 0, LI_KIND_INT = 1, LI_KIND_NIBBLE = 2, LI_KIND_GROUP = 3 };

typedef struct {
    int16_t block_values, block_bytes; /* 0, 0: no such type */
    int16_t kind;                      /* LI_KIND_*: which prepared activations it takes */
    int16_t n_mins;                    /* 1: a block of 32 has an M, 2: and whole numbers to multiply it by; else 0 */
    /* Int types: the first n blocks of 32 values (1 <= n <= 8; 8 where block_values is 256) found at src; fields of
     * further blocks, and m and mins where n_mins has none, are left alone. */
    void (*decode_group)(const uint8_t *src, int n, li_group *out);
    /* Float types: n values, n a multiple of block_values. */
    void (*decode_floats)(const uint8_t *src, int64_t n, float *out);
} li_type_info;

/* All fields 0 for an unsupported type. */
extern const li_type_info li_types[LI_N_TYPES];

/* The fields of `type`; those of an unsupported type where it is out of range. */
const li_type_info *li_type(int type);

/* Bytes from one group of 256 values to the next. */
static inline int64_t li_group_bytes(const li_type_info *t)
{
    return (int64_t)t->block_bytes * (256 / t->block_values);
}

static inline uint16_t li_load_u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t li_load_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline float li_float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t li_bits_of_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* Exact for every half float; a NaN stays one (made quiet, as F16C does). */
static inline float li_float_of_half(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 1023;
    if (exponent == 31)
        return li_float_of_bits(sign | 0x7F800000u | mantissa << 13 | (mantissa ? 0x400000u : 0));
    if (exponent == 0) { /* mantissa * 2^-24 */
        float f = (float)mantissa * li_float_of_bits(0x33800000u);
        return li_float_of_bits(sign | li_bits_of_float(f));
    }
    return li_float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

static inline float li_load_half(const uint8_t *p) { return li_float_of_half(li_load_u16(p)); }

/* 2^(e - 128): MXFP4's scale, halved because its values are stored doubled; e = 0 and 1 give subnormals. */
static inline float li_half_e8m0(uint8_t e)
{
    return li_float_of_bits(e < 2 ? 0x200000u << e : (uint32_t)(e - 1) << 23);
}

/* The 6-bit scales and mins of Q4_K and Q5_K: 12 bytes -> 8 scales, 8 mins, each in the bytes of two words. */
static inline void li_unpack_k_scales(const uint8_t *p, uint32_t scales[2], uint32_t mins[2])
{
    uint32_t a = li_load_u32(p), b = li_load_u32(p + 4), c = li_load_u32(p + 8);
    scales[0] = a & 0x3F3F3F3Fu;
    scales[1] = (c & 0x0F0F0F0Fu) | (a >> 2 & 0x30303030u);
    mins[0] = b & 0x3F3F3F3Fu;
    mins[1] = (c >> 4 & 0x0F0F0F0Fu) | (b >> 2 & 0x30303030u);
}

/* The 16 signed 6-bit scales of Q3_K: 12 bytes -> scale + 32 in the bytes of four words. */
static inline void li_unpack_q3_k_scales(const uint8_t *p, uint32_t scales[4])
{
    uint32_t a = li_load_u32(p), b = li_load_u32(p + 4), c = li_load_u32(p + 8);
    scales[0] = (a & 0x0F0F0F0Fu) | (c << 4 & 0x30303030u);
    scales[1] = (b & 0x0F0F0F0Fu) | (c << 2 & 0x30303030u);
    scales[2] = (a >> 4 & 0x0F0F0F0Fu) | (c & 0x30303030u);
    scales[3] = (b >> 4 & 0x0F0F0F0Fu) | (c >> 2 & 0x30303030u);
}

/* The scale - 32 of 32-value block b of IQ4_XS. */
static inline int li_iq4_xs_scale(const uint8_t *block, int b)
{
    int low = block[4 + b / 2] >> (4 * (b & 1)) & 15, high = li_load_u16(block + 2) >> (2 * b) & 3;
    return (low | high << 4) - 32;
}

/* The levels of IQ4_NL and IQ4_XS, and of FP4 (E2M1, doubled). */
extern const int8_t li_iq4_levels[16];
extern const int8_t li_fp4_levels[16];

#endif
