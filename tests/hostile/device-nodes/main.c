#include "hostile.h"
#include <sys/sysmacros.h>
int main(void)
{
    const char *places[] = {"/tmp", "/box", "/dev/shm"};
    for (int i = 0; i < 3; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/node", places[i]);
        for (unsigned major = 1; major < 256; major++) {
            MUST_FAIL(mknod(path, S_IFCHR | 0666, makedev(major, 1)));
            MUST_FAIL(mknod(path, S_IFBLK | 0666, makedev(major, 0)));
        }
        /* 0, 0 is what an overlay takes for a hole, and anybody may make it elsewhere. */
        if (mknod(path, S_IFCHR | 0666, makedev(0, 0)) == 0) {
            if (i == 1)
                ESCAPED("a hole in the overlay");
            MUST_FAIL(open(path, O_RDONLY));
        }
    }
    HELD();
    return 0;
}
