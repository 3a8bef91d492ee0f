/* Grid points and levels of the codebook types (codebooks.c says how they are packed). */
#ifndef LI_CODEBOOKS_H
#define LI_CODEBOOKS_H

#include <stdint.h>

extern const uint16_t li_iq1_grid[2048];
extern const uint16_t li_iq2_xxs_grid[256];
extern const uint16_t li_iq2_xs_grid[512];
extern const uint16_t li_iq2_s_grid[1024];
extern const uint16_t li_iq3_xxs_grid[256];
extern const uint16_t li_iq3_s_grid[512];

extern const int8_t li_iq1_levels[4];
extern const int8_t li_iq2_levels[4];
extern const int8_t li_iq3_xxs_levels[8];
extern const int8_t li_iq3_s_levels[8];

#endif
