/* ops.h for the compiler's default target. */
#define LI_OPS_TABLE li_ops_baseline
#include "ops_rows.inc"

const li_ops *li_ops_best(void) {
#if defined(__x86_64__)
    if (li_cpu_level() != LI_CPU_SCALAR) return &li_ops_avx2;
#endif
    return &li_ops_baseline;
}
