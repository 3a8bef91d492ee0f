/* The x86 instruction set that a file of templates is compiled for. What is named avx2 is written for AVX2; the files named
 * avx512 include it once more with LI_FOR_AVX512 set. The same vectors of 256 bits then have 32 registers and VNNI, which
 * adds products of int16 to a sum in one instruction; sums over a tile of rows (LI_WIDE) have vectors of 512 bits. */
#ifndef LI_X86_LEVEL_H
#define LI_X86_LEVEL_H

#include "cpu.h"

#if LI_X86
#include <immintrin.h>

#ifndef LI_FOR_AVX512
#define LI_FOR_AVX512 0
#endif

#if LI_FOR_AVX512
#define LI_LEVEL(name) name##_avx512
#define LI_WIDE(name) _mm512_##name
typedef __m512 li_wide_floats;
typedef __m512i li_wide_ints;
#if defined(LI_AVX512_TARGET) /* a test that emulates the instructions */
#define LI_TARGET LI_AVX512_TARGET
#elif defined(__clang__)
#define LI_TARGET "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"
#else /* vectors of 512 bits only where they are written */
#define LI_TARGET "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,prefer-vector-width=256"
#endif
#else
#define LI_TARGET "avx2,fma,f16c"
#define LI_LEVEL(name) name##_avx2
#define LI_WIDE(name) _mm256_##name
typedef __m256 li_wide_floats;
typedef __m256i li_wide_ints;
#endif
enum { LI_WIDE_LANES = sizeof(li_wide_ints) / 4 };

/* Between these, all functions are compiled for LI_TARGET. */
#define LI_PRAGMA(text) _Pragma(#text)
#define LI_PRAGMA_OF(text) LI_PRAGMA(text)
#if defined(__clang__)
#define LI_TARGET_BEGIN LI_PRAGMA_OF(clang attribute push(__attribute__((target(LI_TARGET))), apply_to = function))
#define LI_TARGET_END _Pragma("clang attribute pop")
#else
#define LI_TARGET_BEGIN _Pragma("GCC push_options") LI_PRAGMA_OF(GCC target(LI_TARGET))
#define LI_TARGET_END _Pragma("GCC pop_options")
#endif

#endif
#endif
