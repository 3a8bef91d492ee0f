/* Decoders of the codebook and ternary types, in the form that li_type_info asks for (blocks.h). */
#ifndef LI_BLOCKS_IQ_H
#define LI_BLOCKS_IQ_H

#include "blocks.h"
#include "cpu.h"

/* The grids unpacked, a byte a value, and the signs that belong to a byte of sign bits; made when the library loads. */
extern int8_t li_iq1[2048][8], li_iq2_xxs[256][8], li_iq2_xs[512][8], li_iq2_s[1024][8], li_iq3_xxs[256][4],
    li_iq3_s[512][4];
extern int8_t li_signs_of[256][8];
extern uint8_t li_even_signs[128]; /* the eighth sign makes the number of minus signs even */

typedef void li_group_decoder(const uint8_t *src, int n, li_group *g);

li_group_decoder li_group_iq1_s, li_group_iq1_m, li_group_iq2_xxs, li_group_iq2_xs, li_group_iq2_s, li_group_iq3_xxs,
    li_group_iq3_s, li_group_tq1_0, li_group_tq2_0;

#if LI_X86
li_group_decoder li_group_iq1_s_avx2, li_group_iq1_m_avx2, li_group_iq2_xxs_avx2, li_group_iq2_xs_avx2,
    li_group_iq2_s_avx2, li_group_iq3_xxs_avx2, li_group_iq3_s_avx2, li_group_tq1_0_avx2, li_group_tq2_0_avx2;
#endif

#endif
