/* Which instruction set the kernels use: found once at load, or forced by the environment variable LOCALINFER_CPU
 * (scalar, avx2, avx512, neon, neondot). One binary holds all of them; a level that this machine lacks is never chosen. */
#ifndef LI_CPU_H
#define LI_CPU_H

enum {
    LI_CPU_SCALAR = 0, /* plain C: the reference for all others */
    LI_CPU_AVX2 = 1,   /* AVX2, FMA, F16C */
    LI_CPU_AVX512 = 2, /* the above, and AVX-512 F, BW, DQ, VL, VNNI */
    LI_CPU_NEON = 3,   /* 64-bit ARM */
    LI_CPU_NEON_DOT = 4 /* and the dot product of bytes */
};

/* The level in use. */
int li_cpu_level(void);
/* "scalar", "avx2", ... of the level in use. */
const char *li_cpu_name(void);
/* The best level of this machine, whatever is in use. */
int li_cpu_best(void);
/* Uses that level from now on, for tests; not while kernels run. "" or NULL: the best one, or what LOCALINFER_CPU says.
 * 0, or -1 where the name is unknown or the machine lacks it: then nothing changes. */
int li_cpu_select(const char *name);

#if defined(__x86_64__) || defined(_M_X64)
#define LI_X86 1
#else
#define LI_X86 0
#endif
#if defined(__aarch64__)
#define LI_ARM64 1
#else
#define LI_ARM64 0
#endif

#endif
