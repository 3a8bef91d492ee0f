/* Decoders of the codebook types, in the form that li_type_info asks for (blocks.h). */
#ifndef LI_BLOCKS_IQ_H
#define LI_BLOCKS_IQ_H

#include "blocks.h"

void li_group_iq1_s(const uint8_t *src, int n, li_group *g);
void li_group_iq1_m(const uint8_t *src, int n, li_group *g);
void li_group_iq2_xxs(const uint8_t *src, int n, li_group *g);
void li_group_iq2_xs(const uint8_t *src, int n, li_group *g);
void li_group_iq2_s(const uint8_t *src, int n, li_group *g);
void li_group_iq3_xxs(const uint8_t *src, int n, li_group *g);
void li_group_iq3_s(const uint8_t *src, int n, li_group *g);

#endif
