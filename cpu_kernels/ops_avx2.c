/* ops.h for AVX2: the same code, eight lanes in one register. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif
#define LI_OPS_TABLE li_ops_avx2
#include "ops_rows.inc"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int li_ops_avx2_is_for_x86_only;
#endif
