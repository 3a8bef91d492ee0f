#include "cpu.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#if LI_X86
#include <cpuid.h>
#elif LI_ARM64 && defined(__APPLE__)
#include <sys/sysctl.h>
#elif LI_ARM64 && defined(__linux__)
#include <sys/auxv.h>
#endif

static const char *const names[] = {"scalar", "avx2", "avx512", "neon", "neondot"};

static int level = LI_CPU_SCALAR;

#if LI_X86
/* clang 14 has no name for it in __builtin_cpu_supports. That the system keeps the registers is asked with avx2. */
static int has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

#if LI_ARM64
static int has_dot_product(void)
{
#if defined(__APPLE__)
    int found = 0;
    size_t size = sizeof found;
    return sysctlbyname("hw.optional.arm.FEAT_DotProd", &found, &size, NULL, 0) == 0 && found;
#elif defined(__linux__)
    return (getauxval(AT_HWCAP) & 1ul << 20) != 0; /* HWCAP_ASIMDDP */
#else
    return 0;
#endif
}
#endif

static int has(int candidate)
{
    if (candidate == LI_CPU_SCALAR)
        return 1;
#if LI_X86
    __builtin_cpu_init();
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    if (candidate == LI_CPU_AVX2)
        return avx2;
    if (candidate == LI_CPU_AVX512)
        return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512vnni");
#endif
#if LI_ARM64
    if (candidate == LI_CPU_NEON_DOT)
        return has_dot_product();
#endif
    return LI_ARM64 && candidate == LI_CPU_NEON;
}

int li_cpu_best(void)
{
    if (LI_ARM64)
        return has(LI_CPU_NEON_DOT) ? LI_CPU_NEON_DOT : LI_CPU_NEON;
    return has(LI_CPU_AVX512) ? LI_CPU_AVX512 : has(LI_CPU_AVX2) ? LI_CPU_AVX2 : LI_CPU_SCALAR;
}

int li_cpu_level(void) { return level; }

const char *li_cpu_name(void) { return names[level]; }

int li_cpu_select(const char *name)
{
    if (name == NULL || *name == '\0')
        name = getenv("LOCALINFER_CPU");
    if (name == NULL || *name == '\0') {
        level = li_cpu_best();
        return 0;
    }
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (strcmp(name, names[i]) == 0 && has(i)) {
            level = i;
            return 0;
        }
    return -1;
}

/* An unknown or unusable LOCALINFER_CPU leaves the best level; li_cpu_name tells which one that is. */
__attribute__((constructor)) static void start(void)
{
    if (li_cpu_select(NULL) != 0)
        level = li_cpu_best();
}
