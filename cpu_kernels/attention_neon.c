/* Attention's inner loops for 64-bit ARM: a vector of eight is two of NEON's. */
#include "attention_kernels.h"

#if LI_ARM64
#include <arm_neon.h>
#include <string.h>

#include "kv_half.h"
#include "vec_math.h"

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#define NO_UNROLL _Pragma("GCC unroll 1")
#endif

#define INLINE static inline __attribute__((always_inline))
#define FIXED_ROWS 1

typedef struct {
    float32x4_t a, b;
} vf;
typedef struct {
    int32x4_t a, b;
} vi;

INLINE vf vf_load(const float *p) { return (vf){vld1q_f32(p), vld1q_f32(p + 4)}; }
INLINE void vf_store(float *p, vf v)
{
    vst1q_f32(p, v.a);
    vst1q_f32(p + 4, v.b);
}
INLINE vf vf_set1(float x) { return (vf){vdupq_n_f32(x), vdupq_n_f32(x)}; }
INLINE vf vf_add(vf x, vf y) { return (vf){vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b)}; }
INLINE vf vf_sub(vf x, vf y) { return (vf){vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b)}; }
INLINE vf vf_mul(vf x, vf y) { return (vf){vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b)}; }
/* As on x86: y where either is a NaN. */
INLINE vf vf_max(vf x, vf y)
{
    return (vf){vbslq_f32(vcgtq_f32(x.a, y.a), x.a, y.a), vbslq_f32(vcgtq_f32(x.b, y.b), x.b, y.b)};
}
INLINE vf vf_min(vf x, vf y)
{
    return (vf){vbslq_f32(vcltq_f32(x.a, y.a), x.a, y.a), vbslq_f32(vcltq_f32(x.b, y.b), x.b, y.b)};
}
INLINE vf vf_fma(vf x, vf y, vf z) { return (vf){vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b)}; }
INLINE vf vf_exp(vf x) { return (vf){li_exp_neon(x.a), li_exp_neon(x.b)}; }
INLINE vf vf_tanh(vf x) { return (vf){li_tanh_neon(x.a), li_tanh_neon(x.b)}; }
INLINE vf vf_count(float first)
{
    static const float count[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    return vf_add(vf_set1(first), vf_load(count));
}
/* Lanes lo .. hi-1 of x, the others `other`. */
INLINE vf vf_keep(vf x, int lo, int hi, float other)
{
    static const int32_t lanes[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    if (lo <= 0 && hi >= 8)
        return x;
    const int32x4_t from = vdupq_n_s32(lo), to = vdupq_n_s32(hi), a = vld1q_s32(lanes), b = vld1q_s32(lanes + 4);
    const float32x4_t rest = vdupq_n_f32(other);
    return (vf){vbslq_f32(vandq_u32(vcgeq_s32(a, from), vcltq_s32(a, to)), x.a, rest),
                vbslq_f32(vandq_u32(vcgeq_s32(b, from), vcltq_s32(b, to)), x.b, rest)};
}
INLINE vf vf_half(const uint8_t *p)
{
    return (vf){vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))), vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p + 8)))};
}
INLINE void vf_to_half(vf v, uint16_t *out)
{
    vst1_u16(out, vreinterpret_u16_f16(vcvt_f16_f32(v.a)));
    vst1_u16(out + 4, vreinterpret_u16_f16(vcvt_f16_f32(v.b)));
}
INLINE vf vf_of_shorts(int16x8_t v)
{
    return (vf){vcvtq_f32_s32(vmovl_s16(vget_low_s16(v))), vcvtq_f32_s32(vmovl_high_s16(v))};
}
INLINE vf vf_int8(const uint8_t *p) { return vf_of_shorts(vmovl_s8(vreinterpret_s8_u8(vld1_u8(p)))); }
INLINE vf vf_nibbles(const uint8_t *p, int high)
{
    int8x8_t v = vreinterpret_s8_u8(vld1_u8(p));
    return vf_of_shorts(vmovl_s8(vshr_n_s8(high ? v : vshl_n_s8(v, 4), 4)));
}
INLINE vf vf_from_vi(vi x) { return (vf){vcvtq_f32_s32(x.a), vcvtq_f32_s32(x.b)}; }
INLINE vi vi_load(const uint8_t *p)
{
    return (vi){vreinterpretq_s32_u8(vld1q_u8(p)), vreinterpretq_s32_u8(vld1q_u8(p + 16))};
}
INLINE void vi_store(uint8_t *p, vi v)
{
    vst1q_u8(p, vreinterpretq_u8_s32(v.a));
    vst1q_u8(p + 16, vreinterpretq_u8_s32(v.b));
}
INLINE vi vi_set1(int32_t x) { return (vi){vdupq_n_s32(x), vdupq_n_s32(x)}; }
/* Products of 16-bit halves, neighbours added. */
INLINE int32x4_t madd(int32x4_t x, int32x4_t y)
{
    const int16x8_t p = vreinterpretq_s16_s32(x), q = vreinterpretq_s16_s32(y);
    return vpaddq_s32(vmull_s16(vget_low_s16(p), vget_low_s16(q)), vmull_high_s16(p, q));
}
INLINE vi vi_add_products(vi sum, vi x, vi y)
{
    return (vi){vaddq_s32(sum.a, madd(x.a, y.a)), vaddq_s32(sum.b, madd(x.b, y.b))};
}
INLINE vi vi_pair(const int16_t *p)
{
    int32_t pair;
    memcpy(&pair, p, 4);
    return vi_set1(pair);
}
INLINE vi vi_widen(const uint8_t *p)
{
    const int8x16_t v = vreinterpretq_s8_u8(vld1q_u8(p));
    return (vi){vreinterpretq_s32_s16(vmovl_s8(vget_low_s8(v))), vreinterpretq_s32_s16(vmovl_high_s8(v))};
}
INLINE vi vi_nibble(vi words)
{
    const int32x4_t mask = vdupq_n_s32(0x000f000f);
    return (vi){vandq_s32(words.a, mask), vandq_s32(words.b, mask)};
}
INLINE int32x4_t down_4(int32x4_t x) { return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(x), 4)); }
INLINE vi vi_next_nibble(vi words) { return (vi){down_4(words.a), down_4(words.b)}; }
INLINE int32x4_t minus_16(int32x4_t x, int32_t by)
{
    return vreinterpretq_s32_s16(vsubq_s16(vreinterpretq_s16_s32(x), vdupq_n_s16((int16_t)by)));
}
INLINE vi vi_sub16(vi x, int32_t by) { return (vi){minus_16(x.a, by), minus_16(x.b, by)}; }

#define LI_ATTENTION_TABLE li_attention_neon
#include "attention_kernels.inc"

#else
typedef int li_attention_neon_is_for_arm64_only;
#endif
