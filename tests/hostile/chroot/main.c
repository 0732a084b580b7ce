#include "hostile.h"
int main(void)
{
    mkdir("/tmp/new", 0700);
    mkdir("/tmp/new/old", 0700);
    int root = open("/", O_RDONLY | O_DIRECTORY);
    MUST_FAIL(chroot("/tmp/new"));
    MUST_FAIL(syscall(SYS_pivot_root, "/tmp/new", "/tmp/new/old"));
    MUST_FAIL(syscall(SYS_pivot_root, ".", "."));
    if (fchdir(root) == 0)
        for (int i = 0; i < 100; i++)
            if (chdir("..") < 0)
                break;
    MUST_FAIL(open(&"@SECRET_FILE@"[1], O_RDONLY));
    HELD();
    return 0;
}
