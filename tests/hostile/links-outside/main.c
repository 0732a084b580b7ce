#include "hostile.h"
#include <linux/openat2.h>
int main(void)
{
    const char *targets[] = {"@SECRET_FILE@", "/etc/shadow", "/proc/1/root@SECRET_FILE@",
                             "../../../../../../../..@SECRET_FILE@", "/.oj/shared/tree/main.c"};
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        unlink("/box/link");
        if (symlink(targets[i], "/box/link") < 0)
            return 1;
        MUST_FAIL(open("/box/link", O_RDONLY));
        MUST_FAIL(link(targets[i], "/box/hard"));
    }
    int root = open("/", O_PATH | O_DIRECTORY);
    for (int i = 0; i < 20; i++) {
        int up = openat(root, "..", O_PATH | O_DIRECTORY);
        root = up >= 0 ? up : root;
    }
    MUST_FAIL(openat(root, &"@SECRET_FILE@"[1], O_RDONLY));
    MUST_FAIL(linkat(AT_FDCWD, "/proc/self/fd/0", AT_FDCWD, "/box/input", AT_SYMLINK_FOLLOW));
    MUST_FAIL(linkat(0, "", AT_FDCWD, "/box/input", AT_EMPTY_PATH));
    MUST_FAIL(openat(0, "..", O_RDONLY));
    HELD();
    return 0;
}
