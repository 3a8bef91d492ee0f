/* float16 <-> float32 for one value, in integers: the reference for the machine's own conversions (round to nearest,
 * ties to even; a NaN stays a NaN). */
#ifndef LI_KV_HALF_H
#define LI_KV_HALF_H

#include <stdint.h>
#include <string.h>

static inline float li_half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, magnitude = h & 0x7fffu, bits;
    float f;
    if (magnitude >= 0x7c00u) { /* infinity; a NaN comes out quiet */
        bits = 0x7f800000u | (magnitude & 0x3ffu) << 13;
        if (magnitude > 0x7c00u)
            bits |= 0x00400000u;
    } else if (magnitude >= 0x0400u) {
        bits = (magnitude << 13) + 0x38000000u;
    } else { /* subnormal: magnitude * 2^-24, exact in float32 */
        f = (float)magnitude * 5.9604644775390625e-8f;
        memcpy(&bits, &f, 4);
    }
    bits |= sign;
    memcpy(&f, &bits, 4);
    return f;
}

static inline uint16_t li_float_to_half(float f)
{
    uint32_t bits, sign, odd;
    memcpy(&bits, &f, 4);
    sign = bits >> 16 & 0x8000u;
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (bits >> 13 & 0x3ffu));
    if (bits >= 0x477ff000u) /* from 65520 on, half way to the next step, it rounds to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (bits < 0x38800000u) { /* below 2^-14: adding 0.5 leaves value * 2^24 rounded in the low bits */
        float magnitude, shifted;
        memcpy(&magnitude, &bits, 4);
        shifted = magnitude + 0.5f;
        memcpy(&bits, &shifted, 4);
        return (uint16_t)(sign | (bits - 0x3f000000u));
    }
    odd = bits >> 13 & 1u;
    return (uint16_t)(sign | (bits - 0x38000000u + 0xfffu + odd) >> 13);
}

#endif
