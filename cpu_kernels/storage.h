/* Reads from files into aligned room, past the page cache where the file was opened for that. */
#ifndef LI_STORAGE_H
#define LI_STORAGE_H

#include <stdint.h>

/* Bytes of a file. `offset`, `bytes` and the room's address are multiples of the page size, as direct reads demand;
 * the file may end before offset + bytes, but `least` of them must be there. */
typedef struct {
    int32_t fd;
    int32_t drop; /* the file was opened without direct reads: what went through the page cache is given back */
    int64_t offset, bytes, least;
} li_extent;

#define LI_STORAGE_ENDED (-1) /* the file is shorter than it was */

/* 0, an errno, or LI_STORAGE_ENDED. `ns` grows by the time that the reads took. */
int32_t li_storage_read(const li_extent *from, uint8_t *to, int64_t *ns);

#endif
