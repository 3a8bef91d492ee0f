#include "storage.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

/* One request: large enough for the disk's full speed, small enough that closing a model never waits long. */
enum { REQUEST_BYTES = 4 << 20 };

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int32_t read_all(const li_extent *from, uint8_t *to) {
    for (int64_t done = 0; done < from->least;) {
        const int64_t left = from->bytes - done;
        const ssize_t n = pread(from->fd, to + done, (size_t)(left < REQUEST_BYTES ? left : REQUEST_BYTES),
                                (off_t)(from->offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno;
        if (n == 0) return LI_STORAGE_ENDED;
        done += n;
        /* A direct read stops within a page only where the file ends. */
        if (done < from->least && n % 512) return LI_STORAGE_ENDED;
    }
    return 0;
}

int32_t li_storage_read(const li_extent *from, uint8_t *to, int64_t *ns) {
    const int64_t start = now_ns();
    const int32_t status = read_all(from, to);
#if defined(POSIX_FADV_DONTNEED)
    if (from->drop) posix_fadvise(from->fd, (off_t)from->offset, (off_t)from->bytes, POSIX_FADV_DONTNEED);
#endif
    *ns += now_ns() - start;
    return status;
}
