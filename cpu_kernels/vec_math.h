/* exp and tanh of float32, one value or a vector at a time: the same bits in every form.
 *
 * Each function is one sequence of float32 operations, written once over a small set of primitives (LI_VEC_MATH) and
 * expanded for plain C, AVX2 and NEON. The coefficients are minimax fits (iterated weighted least squares).
 *
 *                  largest error                               outside the range
 *   li_exp         1.0 ulp on [-87.336, 88.722]                below: 0; above: infinity
 *   li_tanh        2 ulp                                       1 and -1
 * A NaN gives a NaN. No denormals come out of li_exp. The bounds were measured over every 37th float32 against libm in
 * double; tests/cpu_kernels/test_attention_math.py looks at exp and tanh through attention.
 */
#ifndef LI_VEC_MATH_H
#define LI_VEC_MATH_H

#include <stdint.h>
#include <string.h>

#include "cpu.h"

/* V the vector type, M its mask; the rest as named. SELECT(m, a, b): a where m, else b. SCALE2(p, t): p times 2 to the
 * integer that is held in the low bits of t. */
#define LI_VEC_MATH(SUFFIX, ATTR, V, M, SET, ADD, SUB, MUL, DIV, FMA, ABS, COPYSIGN, LESS, ISNAN, SELECT, SCALE2) \
    ATTR V li_exp##SUFFIX(V x)                                                                                         \
    {                                                                                                                  \
        V magic = SET(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */                                   \
        V t = FMA(x, SET(1.44269504f), magic);                                                                         \
        V n = SUB(t, magic);                                                                                           \
        V r = FMA(n, SET(-0.693145752f), x); /* ln 2 in two parts, the first of 16 bits: n times it is exact */        \
        r = FMA(n, SET(-1.42860677e-6f), r);                                                                           \
        V p = SET(0.0013814465f);                                                                                      \
        p = FMA(p, r, SET(0.008368781f));                                                                              \
        p = FMA(p, r, SET(0.041668393f));                                                                              \
        p = FMA(p, r, SET(0.1666652f));                                                                                \
        p = FMA(p, r, SET(0.49999994f));                                                                               \
        p = ADD(FMA(p, MUL(r, r), r), SET(1.0f));                                                                      \
        p = SCALE2(p, t);                                                                                              \
        p = SELECT(LESS(x, SET(-87.33654f)), SET(0.0f), p);                                                            \
        p = SELECT(LESS(SET(88.72283f), x), SET(__builtin_inff()), p);                                                 \
        return SELECT(ISNAN(x), x, p);                                                                                 \
    }                                                                                                                  \
    ATTR V li_tanh##SUFFIX(V x)                                                                                        \
    {                                                                                                                  \
        V a = ABS(x);                                                                                                  \
        V z = MUL(a, a);                                                                                               \
        V q = SET(-0.0057049785f);                                                                                     \
        q = FMA(q, z, SET(0.020639079f));                                                                              \
        q = FMA(q, z, SET(-0.05373971f));                                                                              \
        q = FMA(q, z, SET(0.13331442f));                                                                               \
        q = FMA(q, z, SET(-0.3333328f));                                                                               \
        q = FMA(MUL(q, z), a, a);                                                                                      \
        V e = li_exp##SUFFIX(ADD(a, a));                                                                               \
        e = SUB(SET(1.0f), DIV(SET(2.0f), ADD(e, SET(1.0f))));                                                         \
        return COPYSIGN(SELECT(LESS(a, SET(0.625f)), q, e), x);                                                        \
    }

/* Plain C. */
static inline float li_vm_scale2(float p, float t)
{
    uint32_t a, b;
    memcpy(&a, &p, 4);
    memcpy(&b, &t, 4);
    a += b << 23;
    memcpy(&p, &a, 4);
    return p;
}
#define LI_VM_SAME(x) (x)
#define LI_VM_ADD(a, b) ((a) + (b))
#define LI_VM_SUB(a, b) ((a) - (b))
#define LI_VM_MUL(a, b) ((a) * (b))
#define LI_VM_DIV(a, b) ((a) / (b))
#define LI_VM_LESS(a, b) ((a) < (b))
#define LI_VM_ISNAN(a) ((a) != (a))
#define LI_VM_SELECT(m, a, b) ((m) ? (a) : (b))
LI_VEC_MATH(, static inline, float, int, LI_VM_SAME, LI_VM_ADD, LI_VM_SUB, LI_VM_MUL, LI_VM_DIV, __builtin_fmaf,
            __builtin_fabsf, __builtin_copysignf, LI_VM_LESS, LI_VM_ISNAN, LI_VM_SELECT, li_vm_scale2)

#if LI_X86
#include <immintrin.h>

/* Eight floats. For functions that are themselves compiled for AVX2 and FMA. */
#define LI_VM_AVX2 static inline __attribute__((always_inline, target("avx2,fma")))
#define LI_VM_ABS8(x) _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x)
#define LI_VM_SIGN8(a, s)                                                                                              \
    _mm256_or_ps(LI_VM_ABS8(a), _mm256_and_ps(_mm256_set1_ps(-0.0f), s))
#define LI_VM_LESS8(a, b) _mm256_cmp_ps(a, b, _CMP_LT_OQ)
#define LI_VM_ISNAN8(a) _mm256_cmp_ps(a, a, _CMP_UNORD_Q)
#define LI_VM_SELECT8(m, a, b) _mm256_blendv_ps(b, a, m)
#define LI_VM_SCALE8(p, t)                                                                                             \
    _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(t), 23)))
LI_VEC_MATH(_avx2, LI_VM_AVX2, __m256, __m256, _mm256_set1_ps, _mm256_add_ps, _mm256_sub_ps, _mm256_mul_ps,
            _mm256_div_ps, _mm256_fmadd_ps, LI_VM_ABS8, LI_VM_SIGN8, LI_VM_LESS8, LI_VM_ISNAN8,
            LI_VM_SELECT8, LI_VM_SCALE8)
#endif

#if LI_ARM64
#include <arm_neon.h>

/* Four floats. */
#define LI_VM_FMA4(a, b, c) vfmaq_f32(c, a, b)
#define LI_VM_SIGN4(a, s) vbslq_f32(vdupq_n_u32(0x80000000u), s, a)
#define LI_VM_ISNAN4(a) vmvnq_u32(vceqq_f32(a, a))
#define LI_VM_SCALE4(p, t)                                                                                             \
    vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(p), vshlq_n_u32(vreinterpretq_u32_f32(t), 23)))
LI_VEC_MATH(_neon, static inline __attribute__((always_inline)), float32x4_t, uint32x4_t, vdupq_n_f32, vaddq_f32,
            vsubq_f32, vmulq_f32, vdivq_f32, LI_VM_FMA4, vabsq_f32, LI_VM_SIGN4, vcltq_f32, LI_VM_ISNAN4,
            vbslq_f32, LI_VM_SCALE4)
#endif

#endif
