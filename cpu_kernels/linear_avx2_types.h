/* The decoders of blocks_avx2*.h behind functions that take the type as a constant and keep one line of what they list. */
#ifndef LI_LINEAR_AVX2_TYPES_H
#define LI_LINEAR_AVX2_TYPES_H

#include "blocks_avx2_k.h"
#include "linear_avx2.h"

/* Type, name of its decoder, bytes of 8 blocks of 32 values (0: decoded by plain C), and the log2 of the offset that the
 * decoder leaves in (-1: none). */
#define LI_FOR_ALL_TYPES(DO)                                                                                          \
    DO(Q4_0, q4_0, 144, 3)                                                                                            \
    DO(Q4_1, q4_1, 160, -1)                                                                                           \
    DO(Q5_0, q5_0, 176, 4)                                                                                            \
    DO(Q5_1, q5_1, 192, -1)                                                                                           \
    DO(Q8_0, q8_0, 272, 7)                                                                                            \
    DO(Q2_K, q2_k, 84, -1)                                                                                            \
    DO(Q3_K, q3_k, 110, 2)                                                                                            \
    DO(Q4_K, q4_k, 144, -1)                                                                                           \
    DO(Q5_K, q5_k, 176, -1)                                                                                           \
    DO(Q6_K, q6_k, 210, 5)                                                                                            \
    DO(IQ4_NL, iq4_nl, 144, 7)                                                                                        \
    DO(IQ4_XS, iq4_xs, 136, 7)                                                                                        \
    DO(MXFP4, mxfp4, 136, 7)                                                                                          \
    DO(DECODED, decoded, 0, -1)                                                                                       \
    DO(DECODED_NIBBLES, decoded_nibbles, 0, -1)

LI_AVX2_INLINE void pair_of(int type, const uint8_t *group, int j, int has_b, __m256i *u)
{
#define LI_CASE(TYPE, name, bytes, offset)                                                                            \
    if (type == LI_##TYPE)                                                                                            \
        name##_pair(group, j, has_b, u);
    LI_FOR_ALL_TYPES(LI_CASE)
#undef LI_CASE
}

LI_AVX2_INLINE void scales(int type, const uint8_t *group, int n, __m256 *d, __m256 *m)
{
#define LI_CASE(TYPE, name, bytes, offset)                                                                            \
    if (type == LI_##TYPE)                                                                                            \
        name##_scales(group, n, d, m);
    LI_FOR_ALL_TYPES(LI_CASE)
#undef LI_CASE
}

/* Bytes of a group of 256 values. */
LI_AVX2_INLINE int group_bytes(int type)
{
#define LI_CASE(TYPE, name, bytes, offset)                                                                            \
    if (type == LI_##TYPE)                                                                                            \
        return bytes;
    LI_FOR_ALL_TYPES(LI_CASE)
#undef LI_CASE
    return 0;
}

LI_AVX2_INLINE int has_256_values(int type)
{
    return (type >= LI_Q2_K && type <= LI_Q6_K) || type == LI_IQ4_XS;
}

/* Bytes of a block of 32 values; 0 for the types that have none. */
LI_AVX2_INLINE int block_of_32_bytes(int type) { return has_256_values(type) ? 0 : group_bytes(type) / 8; }

/* Of the types with blocks of 32 values. */
LI_AVX2_INLINE void scales4(int type, const uint8_t *const at[4], int has_b, __m256 *d, __m256 *m)
{
#define LI_CASE(TYPE, name)                                                                                           \
    if (type == LI_##TYPE)                                                                                            \
        name##_scales4(at, has_b, d, m);
    LI_CASE(Q4_0, q4_0)
    LI_CASE(Q4_1, q4_1)
    LI_CASE(Q5_0, q5_0)
    LI_CASE(Q5_1, q5_1)
    LI_CASE(Q8_0, q8_0)
    LI_CASE(IQ4_NL, iq4_nl)
    LI_CASE(MXFP4, mxfp4)
#undef LI_CASE
}

LI_AVX2_INLINE int offset_bits(int type)
{
#define LI_CASE(TYPE, name, bytes, offset)                                                                            \
    if (type == LI_##TYPE)                                                                                            \
        return offset;
    LI_FOR_ALL_TYPES(LI_CASE)
#undef LI_CASE
    return -1;
}

/* The group kind (linear_parts.h). */
LI_AVX2_INLINE int is_whole_group(int type) { return type == LI_Q2_K || type == LI_Q3_K; }

/* Types with scales of 16 values. */
LI_AVX2_INLINE int has_scales16(int type) { return type == LI_Q2_K || type == LI_Q3_K || type == LI_Q6_K; }

LI_AVX2_INLINE __m128i bytes16(int type, const uint8_t *group)
{
    return type == LI_Q2_K ? q2_k_bytes16(group) : type == LI_Q3_K ? q3_k_bytes16(group) : q6_k_bytes16(group);
}

/* How often the offset is in lane k of u: in the nibble kind, once for each value and the factor it has there. */
LI_AVX2_INLINE int values_in_lane(int type, int k)
{
    return type != LI_Q4_0 ? 1 : k == 1 ? 17 : k == 2 ? 273 : 1;
}

/* The group of n blocks of a row that starts at block b0; decoded by plain C into `room` where the type needs that. */
LI_AVX2_INLINE const uint8_t *group_at(int type, const li_type_info *t, const uint8_t *row, int64_t b0, int n,
                                       li_group *room)
{
#define LI_CASE(TYPE, name, bytes, offset)                                                                            \
    if (type == LI_##TYPE && bytes)                                                                                   \
        return row + b0 / 8 * bytes;
    LI_FOR_ALL_TYPES(LI_CASE)
#undef LI_CASE
    if (n < 8)
        memset(room, 0, sizeof *room);
    LI_LEVEL(li_decoder)(t)(row + b0 / 8 * li_group_bytes(t), n, room);
    return (const uint8_t *)room;
}

#endif
