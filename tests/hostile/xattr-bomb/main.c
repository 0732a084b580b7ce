#include "hostile.h"
#include <sys/xattr.h>
int main(void)
{
    static char value[60000];
    const char *places[] = {"/tmp", "/box", "/dev/shm"};
    for (int place = 0; place < 3; place++)
        for (int i = 0; i < 200; i++) {
            char path[64];
            snprintf(path, sizeof path, "%s/x%d", places[place], i);
            int fd = open(path, O_CREAT | O_WRONLY, 0600);
            if (fd >= 0)
                fsetxattr(fd, "user.bomb", value, sizeof value, 0);
            MUST_FAIL(fsetxattr(fd, "trusted.overlay.opaque", "y", 1, 0));
            MUST_FAIL(fsetxattr(fd, "security.capability", value, 20, 0));
            close(fd);
        }
    HELD();
    return 0;
}
